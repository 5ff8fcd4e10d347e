"""Memory client: history and facts before a run is planned, turns after it ended.

No run waits longer for memory than ``memory_timeout_s``, and none fails by it. A turn is recorded
when its run has ended; if that fails, or its owner is gone, any gateway does so later, and before a
question of the same conversation is planned, so that it can be followed up at once.
"""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc
from attrs import define, field

from bos.memory.v1 import ExtractFactsRequest, OpenTurnRequest, RecordTurnRequest
from bos.runlog.v1 import LogEvent
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.concurrency.periodic_tasks import periodic_tasks
from bos_chassis.tracing.spans import under
from bos_errors import BosError, DeadlineExceeded, Unavailable
from bos_gateway.core.clarification import beside_exchanges
from bos_gateway.core.taint import begins_tainted
from bos_gateway.core.tracing.ids import RunTrace
from bos_postgres import execute, fetch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    import asyncpg
    from opentelemetry.trace import SpanContext
    from structlog.typing import FilteringBoundLogger

    from bos.memory.v1 import MemoryTurnServiceAsyncStub, OpenTurnResponse
    from bos.runlog.v1 import RunAccepted
    from bos_chassis.telemetry import Telemetry
    from bos_gateway.effects.run_tokens import Tokens
    from bos_gateway.metrics import GatewayMetrics
    from bos_gateway.run_log.reader import Runs
    from bos_gateway.run_log.records import NewRun
    from bos_gateway.settings import GatewaySettings

MEMORY = "memory"
_RECORD_TIMEOUT_S = 10.0
_WORKERS = 4
_MOST_ENDED = 1024
_MOST_EXTRACTIONS = 64
_BATCH = 50
_MAX_ANSWER_CHARS = 65_536
# Their owner has had the time to record them; a gateway that begins to use memory does not send
# everything that ever was.
_UNTOLD = f"""
SELECT run_id FROM runs
WHERE finished_at > now() - interval '7 days' AND remembered_at IS NULL AND conversation_id <> ''
      AND {{which}}
ORDER BY finished_at LIMIT {_BATCH}
"""  # noqa: S608  our own text
_OF_CONVERSATION = _UNTOLD.format(which="user_id = $1 AND conversation_id = $2")
_LEFT_BEHIND = _UNTOLD.format(which="finished_at < now() - interval '10 seconds'")
_REMEMBERED = "UPDATE runs SET remembered_at = now() WHERE run_id = $1 AND remembered_at IS NULL"


@define(eq=False)
class MemoryClient:
    """The gateway's side of memory."""

    _memory: MemoryTurnServiceAsyncStub
    _runs: Runs
    _pool: asyncpg.Pool[asyncpg.Record]
    _tokens: Tokens
    _settings: GatewaySettings
    _metrics: GatewayMetrics
    _telemetry: Telemetry
    _log: FilteringBoundLogger = field(init=False)
    _extractions: set[asyncio.Task[None]] = field(init=False, factory=set)
    _ended: asyncio.Queue[UUID] = field(init=False, factory=lambda: asyncio.Queue(_MOST_ENDED))
    _stopping: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._log = self._telemetry.logger("bos.gateway.memory")

    async def opened(self, run: NewRun) -> NewRun:
        """The run with a conversation, its history, and what is remembered about its user.

        Without memory, or when it takes too long, the run has nothing of these but a conversation.
        """
        request = OpenTurnRequest(
            user_id=run.user_id,
            conversation_id=run.conversation_id,
            max_messages=self._settings.memory_history_messages,
        )
        event = LogEvent()
        event.CopyFrom(run.event)
        accepted = event.run_accepted
        accepted.request.conversation_id = run.conversation_id or str(run.run_id)
        timeout_s = self._settings.memory_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                if run.conversation_id:
                    # Not concurrently: what is asked first could miss a turn that is recorded now.
                    given = (run.user_id, run.conversation_id)
                    await self._record_found(_OF_CONVERSATION, *given)
                known = await self._call("OpenTurn", request, run.run_id, timeout_s)
        except (BosError, TimeoutError) as error:
            self._missed("OpenTurn", run.run_id, error)
        else:
            take_in(accepted, known)
        return replace(run, conversation_id=accepted.request.conversation_id, event=event)

    def asked(self, run: NewRun) -> None:
        """Extract personal facts from a stored run's question, in the background."""
        if self._stopping or len(self._extractions) >= _MOST_EXTRACTIONS:
            self._metrics.memory_calls.labels("ExtractFacts", "left_out").inc()
            return
        # A context of its own: neither the caller's deadline nor its end concerns the extraction.
        task = asyncio.create_task(self._extract(run), context=contextvars.Context())
        self._extractions.add(task)
        task.add_done_callback(self._extractions.discard)

    def ended(self, run_id: UUID) -> None:
        """Queue an ended run to be recorded; a lost one is found by the periodic search."""
        with suppress(asyncio.QueueFull):
            self._ended.put_nowait(run_id)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Record ended runs in memory while the block runs, also those of dead replicas."""
        interval_s = self._settings.maintenance_interval_s

        async def tell() -> None:
            with suppress(BosError):  # left to the next look
                await self._record(await self._ended.get())

        async def look() -> None:
            await asyncio.sleep(interval_s)
            await self._record_found(_LEFT_BEHIND)

        tasks = {"memory, left behind": look} | {f"memory {n}": tell for n in range(_WORKERS)}
        try:
            async with periodic_tasks(self._log, tasks, retry_s=min(1.0, interval_s)):
                yield
        finally:
            self._stopping = True
            for task in self._extractions:
                task.cancel()
            await asyncio.gather(*self._extractions, return_exceptions=True)

    async def _extract(self, run: NewRun) -> None:
        request = facts_request(run)
        timeout_s = self._settings.memory_extraction_timeout_s
        try:
            with under(_root(run.run_id, run.event)):
                await self._call("ExtractFacts", request, run.run_id, timeout_s)
        except BosError as error:
            self._missed("ExtractFacts", run.run_id, error)

    async def _record_found(self, query: str, *arguments: object) -> None:
        for row in await fetch(self._pool, query, *arguments):
            await self._record(row["run_id"])

    async def _record(self, run_id: UUID) -> None:
        """Record an ended run in memory; a run that cannot be recorded does not block others.

        What memory refuses permanently, or is invalid, is not sent again.

        Raises:
            Unavailable, DeadlineExceeded: memory is away, and others would fare no better.
        """
        try:
            first, sequence = await asyncio.gather(
                self._runs.first_event(run_id), self._runs.last_sequence(run_id)
            )
            ((_, last),) = await self._runs.events(run_id, sequence - 1)
            if not last.HasField("run_finished"):
                return  # not over after all
            request = turn_request(str(run_id), first, last)
            with under(_root(run_id, first)):
                await self._call("RecordTurn", request, run_id, _RECORD_TIMEOUT_S)
        except BosError as error:
            self._missed("RecordTurn", run_id, error)
            if isinstance(error, Unavailable | DeadlineExceeded):
                raise
            if error.code != grpc.StatusCode.INVALID_ARGUMENT:
                return
        except Exception:
            # Its log makes no sense, and will make none the next time.
            self._log.exception("turn not recorded", run=str(run_id))
        await execute(self._pool, _REMEMBERED, run_id)

    async def _call(self, method: str, request: Any, run_id: UUID, timeout_s: float) -> Any:
        """Call memory as the run.

        Raises:
            BosError: it failed, or was not in time.
        """
        metadata = self._tokens.metadata(request.user_id, str(run_id), "", [MEMORY], timeout_s)
        call = getattr(self._memory, method)
        with translate_rpc_errors():
            answer = await call(request, timeout=timeout_s, metadata=metadata)
        self._metrics.memory_calls.labels(method, "answered").inc()
        return answer

    def _missed(self, method: str, run_id: UUID, error: BaseException) -> None:
        self._metrics.memory_calls.labels(method, "failed").inc()
        self._log.info(
            "memory did not answer", method=method, run=str(run_id), error=type(error).__name__
        )


def _root(run_id: UUID, first: LogEvent) -> SpanContext | None:
    trace = RunTrace.of(str(run_id), first.run_accepted)
    return None if trace is None else trace.root


def take_in(accepted: RunAccepted, known: OpenTurnResponse) -> None:
    """Freeze what memory knows into a run's first event, and whether that taints the run."""
    known.DiscardUnknownFields()
    accepted.conversation_history.extend(
        beside_exchanges(known.conversation_history, accepted.clarifications)
    )
    accepted.long_term_memory.CopyFrom(known.long_term_memory)
    accepted.tainted = begins_tainted(accepted)


def facts_request(run: NewRun) -> ExtractFactsRequest:
    """The request to look through a question for personal facts."""
    return ExtractFactsRequest(
        user_id=run.user_id,
        question=run.question,
        ask_time=run.event.create_time,
        # The question may be one that was suggested by what the run begins with.
        tainted=run.event.run_accepted.tainted,
        run_id=str(run.run_id),
    )


def turn_request(run_id: str, first: LogEvent, last: LogEvent) -> RecordTurnRequest:
    """The request that records a run in memory, by the first and the last of its events."""
    accepted, response = first.run_accepted, last.run_finished.response
    return RecordTurnRequest(
        user_id=accepted.user_id,
        run_id=run_id,
        conversation_id=accepted.request.conversation_id,
        question=accepted.request.question,
        answer=response.answer[:_MAX_ANSWER_CHARS],
        ask_time=first.create_time,
        answer_time=last.create_time,
        tainted=accepted.tainted or response.tainted,
    )
