"""What memory knows before a run is planned, and what it is told of it.

No run waits longer for memory than ``memory_timeout_s``, and none fails by it. A turn is told of
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

from bos.memory.v1 import ExtractFactsRequest, OpenTurnRequest, RecordTurnRequest
from bos.runlog.v1 import LogEvent
from bos_chassis.errors import BosError, DeadlineExceeded, Unavailable, from_rpc_error
from bos_gateway.continuing import beside_exchanges
from bos_postgres import execute, fetch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    import asyncpg

    from bos.memory.v1 import MemoryTurnServiceAsyncStub, OpenTurnResponse
    from bos_chassis.telemetry import Telemetry
    from bos_gateway.effects import Tokens
    from bos_gateway.metrics import GatewayMetrics
    from bos_gateway.run_log import NewRun
    from bos_gateway.runs import Runs
    from bos_gateway.settings import GatewaySettings

MEMORY = "memory"
_RECORD_TIMEOUT_S = 10.0
_WORKERS = 4
_WAITING = 1024
_EXTRACTIONS = 64
_BATCH = 50
_MAX_ANSWER_CHARS = 65_536
# Their owner has had the time to tell of them.
_LEFT_BEHIND_S = 10.0
# Whoever begins to use memory does not tell it everything that ever was.
_LOOK_BACK_S = 7 * 86400.0

_OF_CONVERSATION = f"""
SELECT run_id FROM runs
WHERE user_id = $1 AND conversation_id = $2 AND conversation_id <> '' AND finished_at IS NOT NULL
      AND remembered_at IS NULL AND finished_at > now() - make_interval(secs => $3)
ORDER BY finished_at LIMIT {_BATCH}
"""  # noqa: S608  our own text
_LEFT_BEHIND = f"""
SELECT run_id FROM runs
WHERE finished_at < now() - make_interval(secs => $1)
      AND finished_at > now() - make_interval(secs => $2)
      AND remembered_at IS NULL AND conversation_id <> ''
ORDER BY finished_at LIMIT {_BATCH}
"""  # noqa: S608
_REMEMBERED = "UPDATE runs SET remembered_at = now() WHERE run_id = $1 AND remembered_at IS NULL"


class Remembering:
    """The gateway's side of memory.

    Args:
        memory: The service.
        runs: Reads what ended.
        pool: Connections whose search path is the gateway's schema.
        tokens: Mints the tokens of the calls.
        settings: Time limits.
        metrics: Counts calls by outcome.
        telemetry: For the log.
    """

    def __init__(
        self,
        memory: MemoryTurnServiceAsyncStub,
        runs: Runs,
        pool: asyncpg.Pool[asyncpg.Record],
        tokens: Tokens,
        settings: GatewaySettings,
        metrics: GatewayMetrics,
        telemetry: Telemetry,
    ) -> None:
        self._memory = memory
        self._runs = runs
        self._pool = pool
        self._tokens = tokens
        self._settings = settings
        self._metrics = metrics
        self._log = telemetry.logger("bos.gateway.remembering")
        self._ended: asyncio.Queue[UUID] = asyncio.Queue(_WAITING)
        self._extractions: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def opened(self, run: NewRun) -> NewRun:
        """The run with a conversation, its history, and what is remembered about its user.

        Without memory, or when it takes too long, the run has nothing of these but a conversation.
        """
        conversation_id = run.conversation_id or str(run.run_id)
        try:
            async with asyncio.timeout(self._settings.memory_timeout_s):
                if run.conversation_id:
                    # Not side by side: what is asked first could miss a turn that is told of now.
                    await self._catch_up(run.user_id, conversation_id)
                known = await self._open(run, conversation_id)
        except (BosError, TimeoutError) as error:
            self._missed("OpenTurn", run.run_id, error)
            known = None
        event = LogEvent()
        event.CopyFrom(run.event)
        event.run_accepted.request.conversation_id = conversation_id
        if known is not None:
            history = beside_exchanges(
                known.conversation_history, event.run_accepted.clarifications
            )
            event.run_accepted.conversation_history.extend(history)
            event.run_accepted.long_term_memory.CopyFrom(known.long_term_memory)
        return replace(run, conversation_id=conversation_id, event=event)

    def asked(self, run: NewRun) -> None:
        """A run was stored: look for personal facts in its question, beside everything else."""
        if self._stopping or len(self._extractions) >= _EXTRACTIONS:
            self._metrics.memory_calls.labels("ExtractFacts", "left_out").inc()
            return
        # A context of its own: neither the caller's deadline nor its end concerns the extraction.
        task = asyncio.create_task(self._extract(run), context=contextvars.Context())
        self._extractions.add(task)
        task.add_done_callback(self._extractions.discard)

    def ended(self, run_id: UUID) -> None:
        """A run has ended here; what is lost of these is found by the next look."""
        if not self._ended.full():
            self._ended.put_nowait(run_id)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Tell memory of what ends while the block runs, and of what was left behind."""
        tasks = [asyncio.create_task(self._tell(), name="memory") for _ in range(_WORKERS)]
        tasks.append(asyncio.create_task(self._look_for_ever(), name="memory, left behind"))
        try:
            yield
        finally:
            self._stopping = True
            for task in (*tasks, *self._extractions):
                task.cancel()
            await asyncio.gather(*tasks, *self._extractions, return_exceptions=True)

    async def _open(self, run: NewRun, conversation_id: str) -> OpenTurnResponse:
        request = OpenTurnRequest(
            user_id=run.user_id,
            conversation_id=conversation_id if run.conversation_id else "",
            max_messages=self._settings.memory_history_messages,
        )
        timeout_s = self._settings.memory_timeout_s
        opened: OpenTurnResponse = await self._call("OpenTurn", request, run.run_id, timeout_s)
        opened.DiscardUnknownFields()
        return opened

    async def _extract(self, run: NewRun) -> None:
        request = ExtractFactsRequest(
            user_id=run.user_id, question=run.question, ask_time=run.event.create_time
        )
        timeout_s = self._settings.memory_extraction_timeout_s
        try:
            await self._call("ExtractFacts", request, run.run_id, timeout_s)
        except BosError as error:
            self._missed("ExtractFacts", run.run_id, error)

    async def _tell(self) -> None:
        while True:
            with suppress(BosError):
                await self._record_each([await self._ended.get()])

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.upkeep_interval_s)
            try:
                left = await self._found(_LEFT_BEHIND, _LEFT_BEHIND_S, _LOOK_BACK_S)
            except BosError as error:
                self._log.warning("turns not looked for", reason=error.reason)
                continue
            except Exception:
                # Whatever it was, the next look must come.
                self._log.exception("turns not looked for")
                continue
            with suppress(BosError):
                await self._record_each(left)

    async def _catch_up(self, user_id: str, conversation_id: str) -> None:
        left = await self._found(_OF_CONVERSATION, user_id, conversation_id, _LOOK_BACK_S)
        await self._record_each(left)

    async def _record_each(self, run_ids: Sequence[UUID]) -> None:
        """Tell of these runs; one that cannot be told of keeps no other from it.

        Raises:
            Unavailable, DeadlineExceeded: memory is away, and the rest would fare no better.
        """
        for run_id in run_ids:
            try:
                await self._record(run_id)
            except BosError as error:
                self._missed("RecordTurn", run_id, error)
                if isinstance(error, Unavailable | DeadlineExceeded):
                    raise
            except Exception:
                # Its log makes no sense, and will make none the next time.
                self._log.exception("turn not told of", run=str(run_id))
                await execute(self._pool, _REMEMBERED, run_id)

    async def _record(self, run_id: UUID) -> None:
        """Tell of a run that has ended; what memory refuses for good is not told again."""
        first, sequence = await asyncio.gather(
            self._runs.first_event(run_id), self._runs.last_sequence(run_id)
        )
        ((_, last),) = await self._runs.events(run_id, sequence - 1)
        if not last.HasField("run_finished"):
            return  # not over after all
        accepted = first.run_accepted
        request = RecordTurnRequest(
            user_id=accepted.user_id,
            run_id=str(run_id),
            conversation_id=accepted.request.conversation_id,
            question=accepted.request.question,
            answer=last.run_finished.response.answer[:_MAX_ANSWER_CHARS],
            ask_time=first.create_time,
            answer_time=last.create_time,
        )
        try:
            await self._call("RecordTurn", request, run_id, _RECORD_TIMEOUT_S)
        except BosError as error:
            if error.code != grpc.StatusCode.INVALID_ARGUMENT:
                raise
            self._missed("RecordTurn", run_id, error)
        await execute(self._pool, _REMEMBERED, run_id)

    async def _found(self, query: str, *arguments: object) -> list[UUID]:
        rows = await fetch(self._pool, query, *arguments)
        return [row["run_id"] for row in rows]

    async def _call(self, method: str, request: Any, run_id: UUID, timeout_s: float) -> Any:
        """Call memory as the run.

        Raises:
            BosError: it failed, or was not in time.
        """
        metadata = self._tokens.metadata(request.user_id, str(run_id), "", [MEMORY], timeout_s)
        call = getattr(self._memory, method)(request, timeout=timeout_s, metadata=metadata)
        try:
            answer = await call
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        finally:
            call.cancel()
        self._metrics.memory_calls.labels(method, "answered").inc()
        return answer

    def _missed(self, method: str, run_id: UUID, error: BaseException) -> None:
        self._metrics.memory_calls.labels(method, "failed").inc()
        self._log.info(
            "memory did not answer", method=method, run=str(run_id), error=type(error).__name__
        )
