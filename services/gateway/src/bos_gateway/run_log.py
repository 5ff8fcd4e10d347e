"""The durable log of runs: one writer per process, group commit, fenced by owner and epoch.

Everything pending, of every run, goes to PostgreSQL in one statement without BEGIN and COMMIT. The
statement locks the rows of its runs and checks that this replica still owns them at that epoch.
Events of a run that is no longer ours are not written and raise :class:`LostRun`, for that run
alone. An append returns after its commit, and only then may anybody see the event.

Most commits do not wait for the disk, so a crash of PostgreSQL can undo them after their events
were shown. The writer keeps such events (:mod:`bos_gateway.tail`) and, after any loss of its
session, writes them again before anything else: the same events, in the same places. The same goes
for what was sent and never answered: it may have been committed, and shown by another replica.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import asyncpg

from bos_chassis.errors import BosError, Unavailable
from bos_gateway.commits import REWRITE, committing, kinds_of
from bos_gateway.day_budget import DayLimit
from bos_gateway.log_session import Target, existing_runs, insert_events, insert_runs, target_of
from bos_gateway.sessions import session_name
from bos_gateway.tail import Row, UnflushedTail, chunks
from bos_postgres import connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from bos.gateway.v1 import RunStatus
    from bos.runlog.v1 import LogEvent
    from bos_chassis.telemetry import Telemetry
    from bos_gateway.commits import CommitObserver
    from bos_gateway.metrics import GatewayMetrics
    from bos_gateway.run_secrets import SealedSecrets

SCHEMA = "gateway"

_STATEMENT_TIMEOUT_S = 15.0
_LOCK_TIMEOUT = "5s"
_RETRY_FIRST_S = 0.05
_RETRY_MAX_S = 0.5
_MAX_BATCH = 512
# The WAL writer flushes several times a second; this bounds memory should it fall behind.
_MAX_TAIL = 8192
# Who is forgotten here is refused by the statement itself.
_MAX_LOST = 1024

_BUSY = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)
# What a lost session, a restart, a stuck lock, a full disk or a failover looks like: it passes, and
# until it does nothing can be promised to anybody. Everything else no repetition mends.
_PASSING = (
    *_BUSY,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what a session that is cut off between two messages looks like
    asyncpg.OperatorInterventionError,
    asyncpg.CannotConnectNowError,
    Unavailable,
    TimeoutError,
    OSError,
)


class LostRun(Exception):
    """The run belongs to another replica now; nothing was written."""


class UserLimit(Exception):
    """The user has as many unfinished runs as may be; nothing was written."""


class LogRefused(BosError):
    """PostgreSQL refused to store events for a reason that repeating does not mend."""

    code = Unavailable.code
    default_reason = "RUN_LOG_REFUSED"


class StoreFull(LogRefused):
    """PostgreSQL has no room left; operators see it in the log and by ``bos doctor``."""

    default_reason = "RUN_LOG_FULL"


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
    max_active: int = 0
    """Most unfinished runs that its user may have, beside those that wait; 0: no bound."""
    max_waiting: int = 0
    """Most runs of its user that may wait for a person; 0: no bound."""
    sealed: SealedSecrets | None = None
    """Its credentials, stored and deleted with the run."""
    max_user_day_tokens: int = 0
    """Most tokens of its user in a day, its own budget included; 0: no bound."""
    max_day_tokens: int = 0
    """Most tokens of everybody in a day; 0: no bound."""


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

    def rows(self) -> list[Row]:
        """The events as they are to stand in the log."""
        numbered = enumerate(zip(self.event_ids, self.events, strict=True), self.first_sequence)
        return [
            Row(self.run_id, sequence, event_id, self.epoch, event)
            for sequence, (event_id, event) in numbered
        ]


@dataclass(slots=True)
class _Pending:
    item: NewRun | Append | None
    """None: only asks whether everything before it is stored."""
    done: asyncio.Future[bool] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    settled: bool = False
    """Whether the outcome is known, also when nobody waits for it any more."""
    in_doubt: bool = False
    """Whether it was sent and its answer got lost: it may have been in the log, for all to see."""

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
        observer: Told about commits.
    """

    def __init__(
        self,
        dsn: str,
        replica_id: UUID,
        *,
        metrics: GatewayMetrics,
        telemetry: Telemetry,
        observer: CommitObserver | None = None,
    ) -> None:
        self._dsn = dsn
        self._replica_id = replica_id
        self._metrics = metrics
        self._observer = observer
        self._log = telemetry.logger("bos.gateway.run_log")
        self._pending: list[_Pending] = []
        self._storing = False
        self._wake = asyncio.Event()
        self.tail = UnflushedTail(_MAX_TAIL)
        """What a crash of PostgreSQL could undo; for reading."""
        # Runs (at an epoch) whose tail could not be written again, the latest last; told at their
        # next append, which for most never comes.
        self._lost: dict[tuple[UUID, int], None] = {}
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
            UserLimit: the user has too many unfinished runs.
            DayLimit: what is left of the day's tokens is less than the run's budget.
            LogRefused: PostgreSQL refuses to store it, or has no room left.
        """
        return await self._put(run)

    async def append(self, append: Append) -> None:
        """Write events; returns after their commit.

        Raises:
            LostRun: the run has another owner, or other events stand at these sequences.
            LogRefused: PostgreSQL refuses to store them.
        """
        await self._put(append)

    async def restored(self) -> None:
        """Wait until the log holds all that this writer ever committed, also after a crash.

        Whoever is about to read a log in order to go on from its end asks this first: before, its
        last events may be missing though they were shown.
        """
        if len(self.tail) or self._storing or self._pending:
            await self._queued(None)

    async def _queued(self, item: NewRun | Append | None) -> bool:
        pending = _Pending(item)
        self._pending.append(pending)
        self._wake.set()
        return await pending.done

    async def _put(self, item: NewRun | Append) -> bool:
        started = time.perf_counter()
        try:
            return await self._queued(item)
        finally:
            self._metrics.append_seconds.observe(time.perf_counter() - started)

    async def _write_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if len(self.tail) and self._connection_lost():
                await self._store([])
            while self._pending:
                batch, self._pending = self._pending[:_MAX_BATCH], self._pending[_MAX_BATCH:]
                await self._store(batch)

    async def _store(self, batch: list[_Pending]) -> None:
        """Write the batch, and the lost tail before it; every outcome is told."""
        self._storing = True
        try:
            await self._write_until_stored(batch)
        except BaseException as error:
            for pending in batch:
                pending.settle(
                    _shutting_down() if isinstance(error, asyncio.CancelledError) else error
                )
            if not isinstance(error, Exception):
                raise
            if not batch:
                self._log.exception("lost events not written again")
        finally:
            self._storing = False

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
                if isinstance(error, asyncpg.DiskFullError):
                    # Runs under way wait for room; a question nobody waits for yet need not.
                    _refuse_new([*batch, *self._pending])
                elif not isinstance(error, _BUSY):
                    self._connection = None
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _RETRY_MAX_S)
            except asyncpg.PostgresError as error:
                if len(batch) <= 1:
                    self._log.error("log write refused", sqlstate=error.sqlstate, exc_info=True)
                    for pending in batch:
                        pending.settle(LogRefused("The run could not be stored."))
                else:
                    for pending in batch:
                        await self._write_until_stored([pending])
                return
            else:
                return

    async def _write(self, batch: list[_Pending]) -> None:
        connection = await self._ready()
        # Settled ones were stored by an earlier round; one whose caller has left is written all
        # the same, because only its outcome may be dropped, never its events.
        accepts = [p for p in batch if isinstance(p.item, NewRun) and not p.settled]
        appends = [p for p in batch if isinstance(p.item, Append) and not p.settled]
        if accepts:
            await self._write_accepts(connection, accepts)
        for statement in _statements(appends):
            await self._write_appends(connection, statement)
        asking = [p for p in batch if p.item is None and not p.settled]
        if asking and not accepts and not appends:
            await connection.fetchval("SELECT 1")
        for one in asking:
            one.settle(True)

    async def _ready(self) -> asyncpg.Connection[asyncpg.Record]:
        """The session; a new one first writes again what the end of the old one may have undone."""
        if self._connection is None or self._connection.is_closed():
            self._connection = None
            connection = await self._connect()
            await self._restore(connection)
            self._connection = connection
        return self._connection

    async def _restore(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        """Write the tail again: the same events, ids, sequences and epochs, on disk this time."""
        written = 0
        tails = self.tail.by_run()
        for chunk in chunks(tails, _MAX_BATCH):
            rows = [row for tail in chunk for row in tail.rows]
            targets = [target_of(tail) for tail in chunk]
            with committing(self._observer, (REWRITE,)):
                outcome = await insert_events(
                    connection, self._replica_id, rows, targets, durable=True, again=True
                )
            written += outcome.written
            self._lost |= {
                (tail.run_id, tail.epoch): None for tail in chunk if tail.run_id in outcome.lost
            }
            for key in list(self._lost)[:-_MAX_LOST]:
                del self._lost[key]
        self.tail.flushed()
        if written:
            self._metrics.rewritten_events.inc(written)
            self._log.warning("PostgreSQL had lost events; written again", events=written)

    async def _write_accepts(
        self, connection: asyncpg.Connection[asyncpg.Record], pending: list[_Pending]
    ) -> None:
        runs = [p.item for p in pending if isinstance(p.item, NewRun)]
        with committing(self._observer, kinds_of(run.event for run in runs)):
            inserted = await insert_runs(connection, self._replica_id, runs)
        created = inserted.created
        if created:
            self.tail.flushed()
        if len(created) < len(runs):
            # Stored by an earlier try whose answer was lost, or refused for its request id.
            created |= await existing_runs(connection, [run.run_id for run in runs])
        for one, run in zip(pending, runs, strict=True):
            if run.run_id in inserted.refused:
                one.settle(UserLimit(run.user_id))
            elif run.run_id in inserted.unaffordable:
                one.settle(DayLimit(*inserted.unaffordable[run.run_id]))
            else:
                one.settle(run.run_id in created)
        self._metrics.batch_events.observe(len(runs))

    async def _write_appends(
        self, connection: asyncpg.Connection[asyncpg.Record], pending: list[_Pending]
    ) -> None:
        items: list[Append] = []
        for one in pending:
            if not isinstance(one.item, Append):
                continue
            if (key := (one.item.run_id, one.item.epoch)) in self._lost:
                del self._lost[key]
                one.settle(LostRun(str(one.item.run_id)))
            else:
                items.append(one.item)
        if not items:
            return
        rows = [row for item in items for row in item.rows()]
        targets = [
            Target(item.run_id, item.epoch, item.status or 0, item.finished, item.first_sequence)
            for item in items
        ]
        again = pending[0].in_doubt
        durable = again or self.tail.full or any(item.durable for item in items)
        try:
            with committing(self._observer, kinds_of(row.event for row in rows)):
                outcome = await insert_events(
                    connection, self._replica_id, rows, targets, durable=durable, again=again
                )
        except _BUSY:
            raise  # that is an answer
        except _PASSING:
            for one in pending:
                one.in_doubt = True
            raise
        self._metrics.batch_events.observe(len(rows))
        kept = [item for item in items if item.run_id not in outcome.lost]
        if outcome.inserted is not None and outcome.flushed is not None:
            self.tail.observed(outcome.inserted, outcome.flushed)
        if durable and kept:
            self.tail.flushed()
        elif kept:
            self.tail.committed(kept)
        for one in pending:
            if isinstance(one.item, Append):
                lost = one.item.run_id in outcome.lost
                one.settle(LostRun(str(one.item.run_id)) if lost else True)

    async def _connect(self) -> asyncpg.Connection[asyncpg.Record]:
        await self._session.aclose()
        connection = await self._session.enter_async_context(
            connect(
                self._dsn,
                application_name=session_name("writer", self._replica_id),
                schema=SCHEMA,
                statement_timeout_s=_STATEMENT_TIMEOUT_S,
                on_lost=self._wake.set,
            )
        )
        # PostgreSQL keeps a plan once it has made it. Made while the tables were empty, it would
        # read them whole for every append; each row that is wanted here is known by its key.
        await connection.execute(
            f"SET lock_timeout = '{_LOCK_TIMEOUT}'; SET synchronous_commit = on; "
            "SET enable_seqscan = off"
        )
        return connection

    def _connection_lost(self) -> bool:
        return self._connection is None or self._connection.is_closed()


def _statements(appends: Sequence[_Pending]) -> Iterator[list[_Pending]]:
    """Appends that may share a statement, in their order.

    A run comes once in each: the statement fences by run, and an append of an earlier epoch must
    not be let through by a later one beside it. What is in doubt is written as what is written
    again, so it does not mix with the rest.
    """
    statement: list[_Pending] = []
    runs: set[UUID] = set()
    for one in appends:
        assert isinstance(one.item, Append)
        if statement and (one.item.run_id in runs or one.in_doubt != statement[0].in_doubt):
            yield statement
            statement, runs = [], set()
        statement.append(one)
        runs.add(one.item.run_id)
    if statement:
        yield statement


def _refuse_new(pending: Sequence[_Pending]) -> None:
    for one in pending:
        if isinstance(one.item, NewRun) and not one.settled:
            one.settle(StoreFull("No question can be stored at the moment; try again later."))


def _shutting_down() -> Unavailable:
    return Unavailable("The service is shutting down.", retry_after_s=1.0)
