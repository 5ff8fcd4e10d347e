"""The durable log of runs: one writer per process, group commit, fenced by owner and epoch.

Everything pending, of every run, goes to PostgreSQL in one statement without BEGIN and COMMIT. The
statement locks the rows of its runs and checks that this replica still owns them at that epoch.
Events of a run that is no longer ours are not written and raise :class:`LostRun`, for that run
alone. An append returns after its commit, and only then may anybody see the event.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter as Tally
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import asyncpg

from bos_chassis.errors import BosError, Unavailable
from bos_gateway.log_statements import ACCEPT, APPEND, STORED_IDS
from bos_postgres import connect

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from bos.gateway.v1 import RunStatus
    from bos.runlog.v1 import LogEvent
    from bos_chassis.telemetry import Telemetry
    from bos_gateway.metrics import GatewayMetrics

SCHEMA = "gateway"
SCHEMA_VERSION = 1

_STATEMENT_TIMEOUT_S = 15.0
_LOCK_TIMEOUT = "5s"
_RETRY_FIRST_S = 0.05
_RETRY_MAX_S = 2.0
_MAX_BATCH = 512

_BUSY = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)
# What a lost session, a restart, a stuck lock, a full disk or a failover looks like: it passes, and
# until it does nothing can be promised to anybody. Everything else no repetition mends.
_PASSING = (
    *_BUSY,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.OperatorInterventionError,
    asyncpg.CannotConnectNowError,
    Unavailable,
    TimeoutError,
    OSError,
)


class LostRun(Exception):
    """The run belongs to another replica now; nothing was written."""


class LogRefused(BosError):
    """PostgreSQL refused to store events for a reason that repeating does not mend."""

    code = Unavailable.code
    default_reason = "RUN_LOG_REFUSED"


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be accepted."""

    run_id: UUID
    user_id: str
    request_id: str
    request_digest: bytes
    conversation_id: str
    question: str
    event: LogEvent
    """The RunAccepted event."""


@dataclass(frozen=True, slots=True)
class Append:
    """Events of one run, in order, to be written together."""

    run_id: UUID
    epoch: int
    first_sequence: int
    events: Sequence[LogEvent]
    durable: bool
    """Wait until the commit is on disk; needed for ends, approvals and effects."""
    status: RunStatus | None = None
    """The run's new status, if these events change it."""
    finished: bool = False
    event_ids: Sequence[UUID] = field(init=False)
    """Identity of each event, so that repeating a write cannot double it."""

    def __post_init__(self) -> None:
        """Give every event its identity."""
        object.__setattr__(self, "event_ids", tuple(uuid4() for _ in self.events))


@dataclass(slots=True)
class _Pending:
    item: NewRun | Append
    done: asyncio.Future[bool] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    settled: bool = False
    """Whether the outcome is known, also when nobody waits for it any more."""

    def settle(self, outcome: bool | BaseException) -> None:
        """Tell whoever waits; they may have given up meanwhile."""
        self.settled = True
        if self.done.done():
            return
        if isinstance(outcome, BaseException):
            self.done.set_exception(outcome)
        else:
            self.done.set_result(outcome)


class LogWriter:
    """The one writer of this process. An async context manager; leaving it drops what is pending.

    Args:
        dsn: PostgreSQL with the gateway's schema.
        replica_id: This replica, as in ``runs.replica_id``.
        metrics: Where latency and batch size are recorded.
        telemetry: For the log.
    """

    def __init__(
        self, dsn: str, replica_id: UUID, *, metrics: GatewayMetrics, telemetry: Telemetry
    ) -> None:
        self._dsn = dsn
        self._replica_id = replica_id
        self._metrics = metrics
        self._log = telemetry.logger("bos.gateway.run_log")
        self._pending: list[_Pending] = []
        self._wake = asyncio.Event()
        self._session = AsyncExitStack()
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._connection = await self._connect()
        self._task = asyncio.create_task(self._write_for_ever(), name="run-log-writer")
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for pending in self._pending:
            pending.settle(_shutting_down())
        self._pending.clear()
        await self._session.aclose()

    async def accept(self, run: NewRun) -> bool:
        """Store a new run with its first event; returns after the commit reached the disk.

        Returns:
            False when the user already has a run under this request id; nothing was stored then.

        Raises:
            LogRefused: PostgreSQL refuses to store it.
        """
        return await self._put(run)

    async def append(self, append: Append) -> None:
        """Write events; returns after their commit.

        Raises:
            LostRun: the run has another owner, or other events stand at these sequences.
            LogRefused: PostgreSQL refuses to store them.
        """
        await self._put(append)

    async def _put(self, item: NewRun | Append) -> bool:
        pending = _Pending(item)
        self._pending.append(pending)
        self._wake.set()
        started = time.perf_counter()
        try:
            return await pending.done
        finally:
            self._metrics.append_seconds.observe(time.perf_counter() - started)

    async def _write_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                batch, self._pending = self._pending[:_MAX_BATCH], self._pending[_MAX_BATCH:]
                try:
                    await self._write_until_stored(batch)
                except BaseException as error:
                    refused = Unavailable("The service is shutting down.", retry_after_s=1.0)
                    for pending in batch:
                        pending.settle(
                            refused if isinstance(error, asyncio.CancelledError) else error
                        )
                    if not isinstance(error, Exception):
                        raise

    async def _write_until_stored(self, batch: list[_Pending]) -> None:
        """Repeat the write until it is stored: its event ids make repeating harmless.

        What PostgreSQL refuses for good is refused alone: nobody else's events go down with it.
        """
        wait_s = _RETRY_FIRST_S
        while True:
            try:
                await self._write(batch)
            except _PASSING as error:
                self._log.warning("log write failed", error=type(error).__name__, retry_s=wait_s)
                if not isinstance(error, _BUSY):
                    self._connection = None
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _RETRY_MAX_S)
            except asyncpg.PostgresError as error:
                if len(batch) == 1:
                    self._log.error("log write refused", sqlstate=error.sqlstate, exc_info=True)
                    batch[0].settle(LogRefused("The run could not be stored."))
                else:
                    for pending in batch:
                        await self._write_until_stored([pending])
                return
            else:
                return

    async def _write(self, batch: list[_Pending]) -> None:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        # Settled ones were stored by an earlier round; one whose caller has left is written all
        # the same, because only its outcome may be dropped, never its events.
        accepts = [p for p in batch if isinstance(p.item, NewRun) and not p.settled]
        appends = [p for p in batch if isinstance(p.item, Append) and not p.settled]
        if accepts:
            await self._write_accepts(self._connection, accepts)
        if appends:
            await self._write_appends(self._connection, appends)

    async def _write_accepts(
        self, connection: asyncpg.Connection[asyncpg.Record], pending: list[_Pending]
    ) -> None:
        runs = [p.item for p in pending if isinstance(p.item, NewRun)]
        rows = await connection.fetch(
            ACCEPT,
            [run.run_id for run in runs],
            [run.user_id for run in runs],
            [run.request_id for run in runs],
            [run.request_digest for run in runs],
            [run.conversation_id for run in runs],
            [run.question for run in runs],
            [1] * len(runs),
            [uuid4() for _ in runs],
            [run.event.SerializeToString() for run in runs],
            [_time(run.event) for run in runs],
            self._replica_id,
            SCHEMA_VERSION,
        )
        created = {row["run_id"] for row in rows}
        if len(created) < len(runs):
            created |= await self._ours(connection, [r.run_id for r in runs])
        for one, run in zip(pending, runs, strict=True):
            one.settle(run.run_id in created)
        self._metrics.batch_events.observe(len(runs))

    async def _ours(
        self, connection: asyncpg.Connection[asyncpg.Record], run_ids: list[UUID]
    ) -> set[UUID]:
        """Those of ``run_ids`` that exist: stored by an earlier try whose answer was lost."""
        rows = await connection.fetch("SELECT run_id FROM runs WHERE run_id = ANY ($1)", run_ids)
        return {row["run_id"] for row in rows}

    async def _write_appends(
        self, connection: asyncpg.Connection[asyncpg.Record], pending: list[_Pending]
    ) -> None:
        items = [p.item for p in pending if isinstance(p.item, Append)]
        rows = [
            (item.run_id, item.first_sequence + offset, event_id, item.epoch, event)
            for item in items
            for offset, (event, event_id) in enumerate(
                zip(item.events, item.event_ids, strict=True)
            )
        ]
        durable = any(item.durable for item in items)
        stored = await connection.fetch(
            APPEND,
            "on" if durable else "off",
            [row[0] for row in rows],
            [row[1] for row in rows],
            [row[2] for row in rows],
            [row[3] for row in rows],
            [row[4].WhichOneof("event") for row in rows],
            [row[4].SerializeToString() for row in rows],
            [_time(row[4]) for row in rows],
            [item.run_id for item in items],
            [item.epoch for item in items],
            [item.status or 0 for item in items],
            [item.finished for item in items],
            self._replica_id,
            SCHEMA_VERSION,
            [item.first_sequence for item in items],
        )
        self._metrics.batch_events.observe(len(rows))
        written = {row["run_id"]: row["written"] for row in stored}
        expected = Tally(row[0] for row in rows)
        conflicts = [r for r in rows if written.get(r[0], expected[r[0]]) < expected[r[0]]]
        foreign = await self._foreign(connection, conflicts) if conflicts else set()
        for one, item in zip(pending, items, strict=True):
            lost = item.run_id not in written or item.run_id in foreign
            one.settle(LostRun(str(item.run_id)) if lost else True)

    async def _foreign(
        self,
        connection: asyncpg.Connection[asyncpg.Record],
        rows: list[tuple[UUID, int, UUID, int, LogEvent]],
    ) -> set[UUID]:
        """Runs at whose sequences other events stand than the ones we meant to write."""
        found = await connection.fetch(
            STORED_IDS, [row[0] for row in rows], [row[1] for row in rows]
        )
        stored = {(row["run_id"], row["sequence"]): row["event_id"] for row in found}
        return {row[0] for row in rows if stored.get((row[0], row[1])) != row[2]}

    async def _connect(self) -> asyncpg.Connection[asyncpg.Record]:
        await self._session.aclose()
        connection = await self._session.enter_async_context(
            connect(
                self._dsn,
                application_name="bos-gateway-writer",
                schema=SCHEMA,
                statement_timeout_s=_STATEMENT_TIMEOUT_S,
            )
        )
        await connection.execute(
            f"SET lock_timeout = '{_LOCK_TIMEOUT}'; SET synchronous_commit = on"
        )
        return connection


def _shutting_down() -> Unavailable:
    return Unavailable("The service is shutting down.", retry_after_s=1.0)


def _time(event: LogEvent) -> datetime:
    return event.create_time.ToDatetime(tzinfo=UTC)
