"""Following a run to its end, or to where a person is needed, with news for the client."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bos.gateway.v1 import ApprovalStatus
from bos_client.text import one_line
from bos_conversation.mcp.results import bounded
from bos_errors import DeadlineExceeded

if TYPE_CHECKING:
    from mcp.server.mcpserver import Context

    from bos.gateway.v1 import Approval, PlannedEvent, RunEvent
    from bos_client.client import BosClient

_TEXT_EVERY_S = 0.3
_MAX_NEWS_CHARS = 300
_MAX_ANSWER_CHARS = 2000
ANSWER_SO_FAR = "Answer so far: "
"""What news of the answer's text begin with; the text so far follows, its end if it is long."""


@dataclass
class News:
    """Progress notifications of one call; nothing if the client asked for none."""

    context: Context[Any, Any]
    _count: int = 0
    _answer: str = ""
    _sent_at: float = field(default=0.0)

    async def tell(self, message: str) -> None:
        """Send a line."""
        self._count += 1
        await self.context.report_progress(self._count, None, message)

    async def event(self, event: RunEvent) -> None:
        """Send what an event says to people, if anything."""
        match event.WhichOneof("event"):
            case "planned":
                await self.tell(_plan(event.planned))
            case "step_started":
                step = event.step_started
                await self.tell(_line(f"{step.agent_name}: {step.task}"))
            case "step_finished":
                result = event.step_finished.result
                await self.tell(_line(f"{event.step_finished.step_id}: {result.answer or 'ended'}"))
            case "revision_started":
                await self.tell("Making another plan")
            case "answer_started":
                self._answer = ""
            case "answer_delta":
                self._answer += event.answer_delta.text
                await self._tell_answer()

    async def _tell_answer(self) -> None:
        now = time.monotonic()
        if now - self._sent_at < _TEXT_EVERY_S:
            return
        self._sent_at = now
        await self.tell(ANSWER_SO_FAR + self._answer[-_MAX_ANSWER_CHARS:])


@dataclass(frozen=True, slots=True)
class Stopped:
    """Where following ended: at the run's end, at an action that waits, or as time was over."""

    sequence: int
    approval: Approval | None = None
    timed_out: bool = False


async def follow(
    bos: BosClient,
    run_id: str,
    news: News,
    *,
    until: float,
    after: int = 0,
    decided: frozenset[str] = frozenset(),
) -> Stopped:
    """Follow a run.

    Args:
        bos: Calls as the run's owner.
        run_id: The run.
        news: Where events go.
        until: When to stop, in seconds of the monotonic clock.
        after: The last event that is known.
        decided: Approvals that were decided, even if their events do not say so yet.
    """
    sequence = after
    try:
        async with asyncio.timeout(max(0.0, until - time.monotonic())):
            async with aclosing(bos.watch(run_id, after)) as events:
                async for event in events:
                    sequence = max(sequence, event.sequence)
                    if (waits := await _waits(bos, event, decided)) is not None:
                        return Stopped(sequence, waits)
                    await news.event(event)
    except (TimeoutError, DeadlineExceeded):
        return Stopped(sequence, timed_out=True)
    return Stopped(sequence)


async def _waits(bos: BosClient, event: RunEvent, decided: frozenset[str]) -> Approval | None:
    """The request for approval of an event, if it still waits."""
    if not event.HasField("approval_requested"):
        return None
    approval_id = event.approval_requested.approval.approval_id
    if approval_id in decided:
        return None
    approval = await bos.get_approval(approval_id)
    pending = approval.status == ApprovalStatus.APPROVAL_STATUS_PENDING
    return approval if pending else None


def _plan(planned: PlannedEvent) -> str:
    steps = [f"{step.agent}: {step.task}" for step in planned.plan.steps]
    return _line(f"Plan of {len(steps)} steps. " + "; ".join(steps))


def _line(text: str) -> str:
    return bounded(one_line(text), _MAX_NEWS_CHARS)
