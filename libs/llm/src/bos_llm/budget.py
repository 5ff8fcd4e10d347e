"""Tokens that a piece of work may consume: reserved before a model call, settled after it.

A budget is given to the current task, like its deadline, so that no agent has to hand it on and
none can forget it::

    set_budget(TokenBudget(20_000))
    await model.text(messages)  # BudgetExhausted, before anything is sent, once it is used up
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from bos_llm.errors import BudgetExhausted

# Text in the vocabularies of today's models has three to four bytes per token, dense JSON and SQL
# somewhat under three, scripts other than Latin two to three. Two bytes per token is therefore more
# than a prompt takes, short of one made of bare digits, and costs no tokenizer. What a call turns
# out to have consumed is what counts afterwards, so a guess too high holds tokens back for the time
# of one call only, and one too low is paid for by the calls after it.
_BYTES_PER_TOKEN = 2
_TOKENS_PER_MESSAGE = 8
# A call that could not say even this much is not worth its prompt.
_MIN_REPLY_TOKENS = 64
# What a reply may take if its caller names no limit. Without one, a single call would hold all
# that is left, and lose it when it is cut off.
_MAX_REPLY_TOKENS = 8192

_current: ContextVar[TokenBudget | None] = ContextVar("bos_token_budget", default=None)


def set_budget(budget: TokenBudget | None) -> None:
    """Have model calls of the current task (and of what it starts) spend from ``budget``."""
    _current.set(budget)


def current_budget() -> TokenBudget | None:
    """The budget of model calls of the current task; None for no bound."""
    return _current.get()


class TokenBudget:
    """Token budget of a piece of work; calls side by side may share one.

    Args:
        tokens: Sent and received together; 0 admits no call. None: no bound.
    """

    def __init__(self, tokens: int | None) -> None:
        self.tokens = sys.maxsize if tokens is None else tokens
        self.counted = 0
        """Tokens consumed, and those of calls that ended without saying what they consumed."""
        self.abandoned = 0
        """Calls given up before their reply was there; the model may have worked on them."""
        self._held = 0
        self._calls = 0
        self._changed = asyncio.Event()

    @property
    def left(self) -> int:
        """Tokens neither counted nor held; 0 also when more was consumed than there was."""
        return max(0, self.tokens - self.counted - self._held)

    @property
    def under_way(self) -> int:
        """Calls that hold tokens: their reply is not there yet, nor have they been given up."""
        return self._calls

    async def reserve(self, prompt_tokens: int, max_reply_tokens: int | None) -> Reservation:
        """Hold what one call can consume at most; the reply gets what the prompt leaves over.

        Waits while other calls hold tokens that they may give back.

        Raises:
            BudgetExhausted: nothing is under way, and what is left is too little.
        """
        wanted = max_reply_tokens or _MAX_REPLY_TOKENS
        needed = prompt_tokens + min(wanted, _MIN_REPLY_TOKENS)
        while self.left < needed:
            if not self._calls:
                raise BudgetExhausted(
                    f"The token budget does not allow this model call: {self.left} of "
                    f"{self.tokens} tokens are left, and it could take {needed}. Raise "
                    "BOS_GATEWAY_MAX_RUN_TOKENS or the request's max_tokens, or ask for less."
                )
            await self._changed.wait()
        held = min(self.left, prompt_tokens + wanted)
        self._held += held
        self._calls += 1
        return Reservation(self, held, held - prompt_tokens)

    def _settle(self, held: int, consumed: int) -> None:
        self._held -= held
        self._calls -= 1
        self.counted += consumed
        # A new event object per change: a waiter that took the old one before cannot miss it.
        self._changed.set()
        self._changed = asyncio.Event()


class Reservation:
    """Tokens held for one call. The first of its methods to be called decides what counts."""

    def __init__(self, budget: TokenBudget, tokens: int, reply_tokens: int) -> None:
        self._budget = budget
        self._tokens = tokens
        self.reply_tokens = reply_tokens
        """What the reply may take."""
        self._open = True

    def settle(self, consumed: int) -> None:
        """The call said what it consumed, be it more than was held; 0 if it was turned away."""
        if self._open:
            self._open = False
            self._budget._settle(self._tokens, consumed)

    def forfeit(self) -> None:
        """Usage stays unknown: all that the call could have consumed counts."""
        if self._open:
            self._budget.abandoned += 1
        self.settle(self._tokens)


def prompt_bound(body: Mapping[str, Any]) -> int:
    """More tokens than the prompt of a request should take: its messages, and its JSON schema."""
    texts = [message["content"] for message in body["messages"]]
    if "response_format" in body:
        texts.append(json.dumps(body["response_format"], ensure_ascii=False))
    return texts_bound(texts)


def texts_bound(texts: Sequence[str]) -> int:
    """More tokens than texts should take."""
    size = sum(len(text.encode(errors="replace")) for text in texts)
    return size // _BYTES_PER_TOKEN + _TOKENS_PER_MESSAGE * len(texts)
