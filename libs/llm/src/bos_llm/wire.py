"""Reading the replies of the chat completions API, which arrive as untyped JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class ForeignReply(ValueError):
    """What came back is not a reply of the chat completions API, such as a proxy's HTML page."""


@dataclass(frozen=True, slots=True)
class TokenCount:
    """The ``usage`` of a reply."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    """Part of the input that was not read anew, which is cheaper."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply, or one chunk of a streamed one."""

    text: str = ""
    refusal: str = ""
    finish_reason: str | None = None
    model: str = ""
    """As the endpoint names it, often with a date appended."""
    tokens: TokenCount | None = None


class ReplyBuilder:
    """The whole of a streamed reply, put together from its chunks."""

    def __init__(self, max_chars: int) -> None:
        self._left = max_chars
        self._texts: list[str] = []
        self._last = Reply()
        self._chunks = 0

    @property
    def text(self) -> str:
        """What was said so far."""
        return "".join(self._texts)

    @property
    def is_blank(self) -> bool:
        """Whether there was no chunk at all."""
        return self._chunks == 0

    def add(self, chunk: Reply) -> str:
        """Append a chunk; returns its text.

        Raises:
            ForeignReply: the reply is longer than any real one.
        """
        self._left -= len(chunk.text) + len(chunk.refusal)
        if self._left < 0:
            raise ForeignReply("a stream without an end")
        self._chunks += 1
        if chunk.text:
            self._texts.append(chunk.text)
        self._last = Reply(
            refusal=self._last.refusal + chunk.refusal,
            finish_reason=chunk.finish_reason or self._last.finish_reason,
            model=chunk.model or self._last.model,
            tokens=chunk.tokens or self._last.tokens,
        )
        return chunk.text

    def add_all(self, chunks: Iterable[Reply]) -> str:
        """Append chunks; returns their text.

        Raises:
            ForeignReply: the reply is longer than any real one.
        """
        return "".join([self.add(chunk) for chunk in chunks])

    def reply(self) -> Reply:
        """The whole."""
        return replace(self._last, text=self.text)


def read_completion(body: object) -> Reply:
    """A whole reply.

    Raises:
        ForeignReply: it is something else.
    """
    reply = _read(body, "message")
    if reply is None:
        raise ForeignReply("a completion without a choice")
    return reply


def read_chunk(body: object) -> Reply:
    """One chunk of a streamed reply; the one with the usage has no choices.

    Raises:
        ForeignReply: it is something else.
    """
    reply = _read(body, "delta")
    if reply is not None:
        return reply
    assert isinstance(body, dict)
    return Reply(model=_string(body.get("model")), tokens=_tokens(body.get("usage")))


def _read(body: object, part: str) -> Reply | None:
    if not isinstance(body, dict):
        raise ForeignReply("no JSON object")
    choices = body.get("choices")
    if not isinstance(choices, list):
        raise ForeignReply("no list of choices")
    if not choices:
        return None
    choice = choices[0]
    message = choice.get(part) if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise ForeignReply(f"a choice without a {part}")
    return Reply(
        text=_string(message.get("content")),
        refusal=_string(message.get("refusal")),
        finish_reason=choice.get("finish_reason"),
        model=_string(body.get("model")),
        tokens=_tokens(body.get("usage")),
    )


def _tokens(usage: Any) -> TokenCount | None:
    if not isinstance(usage, dict):
        return None
    sent, received = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not isinstance(sent, int) or not isinstance(received, int) or min(sent, received) < 0:
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return TokenCount(sent, received, min(max(cached, 0), sent) if isinstance(cached, int) else 0)


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
