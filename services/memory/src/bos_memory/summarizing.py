"""Rolling summaries of conversations, written by background workers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BaseModel, Field

from bos_llm import NoReply, attempt
from bos_memory.conversations import SUMMARY_TURNS
from bos_memory.prompts import summary_messages
from bos_memory.texts import MAX_SUMMARY_CHARS, cut, summary_by_rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from bos_chassis.telemetry import Telemetry
    from bos_llm import Model
    from bos_memory.conversations import Conversations, Recorded, ToSummarise
    from bos_memory.metrics import MemoryMetrics
    from bos_memory.settings import MemorySettings

_WORKERS = 2


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


class ConversationSummary(BaseModel):
    """The model's reply: a summary of the conversation so far."""

    # A validator and not minLength, which some endpoints do not support in strict schemas.
    summary: Annotated[str, AfterValidator(_not_blank)] = Field(
        description="The conversation so far, at most 150 words"
    )


class Summaries:
    """Queue and workers for summaries; one lost at shutdown is made with the next turn.

    Args:
        conversations: Store of turns and summaries.
        model: Access to the model; None summarises by rule.
        settings: Timeouts and limits.
        metrics: Counts outcomes.
        telemetry: For the log.
    """

    def __init__(
        self,
        conversations: Conversations,
        model: Model | None,
        settings: MemorySettings,
        metrics: MemoryMetrics,
        telemetry: Telemetry,
    ) -> None:
        self._conversations = conversations
        self._model = model
        self._settings = settings
        self._metrics = metrics
        self._log = telemetry.logger("bos.memory.summaries")
        self._waiting: asyncio.Queue[tuple[UUID, int]] = asyncio.Queue(settings.max_summaries)

    def recorded(self, turn: Recorded) -> None:
        """Queue a stored turn if a summary is due."""
        up_to = turn.turns - turn.turns % SUMMARY_TURNS
        if not up_to:
            return
        try:
            self._waiting.put_nowait((turn.conversation_key, up_to))
        except asyncio.QueueFull:
            self._metrics.summaries.labels("put_off").inc()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the workers while the block runs."""
        workers = [asyncio.create_task(self._work(), name="summaries") for _ in range(_WORKERS)]
        try:
            yield
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            conversation_key, up_to = await self._waiting.get()
            try:
                await self._summarise(conversation_key, up_to)
            except Exception:
                # An error affects this summary only.
                self._metrics.summaries.labels("failed").inc()
                self._log.exception("summary failed")

    async def _summarise(self, conversation_key: UUID, up_to: int) -> None:
        wanted = await self._conversations.to_summarise(conversation_key, up_to)
        if wanted is None:
            return
        text = await self._by_model(wanted)
        outcome = "by_model" if text else "by_rule"
        text = text or summary_by_rule(wanted.former, wanted.turns)
        await self._conversations.add_summary(conversation_key, text, up_to, tainted=wanted.tainted)
        self._metrics.summaries.labels(outcome).inc()

    async def _by_model(self, wanted: ToSummarise) -> str:
        """The model's summary; empty without a model or after a failure."""
        try:
            reply = await attempt(
                self._model,
                lambda: summary_messages(wanted.former, wanted.turns),
                ConversationSummary,
                within_s=self._settings.summary_timeout_s,
                max_tokens=self._settings.max_reply_tokens,
            )
        except NoReply as failure:
            if not failure.not_configured:
                self._log.info("summary made by rule", error=failure.error_type)
            return ""
        return cut(reply.value.summary.strip(), MAX_SUMMARY_CHARS)
