"""The durable log of runs: one writer per process, group commit, fenced by owner and epoch.

Everything pending, of every run, goes to PostgreSQL in one statement without BEGIN and COMMIT, and
every commit waits for the disk. The statement locks the rows of its runs and checks that this
replica owns them at that epoch and that their logs end where the new events begin. Events of a run
that is no longer ours are not written and raise :class:`LostRun`, for that run alone. A write whose
answer was lost is repeated: finding our own events in place is success. New runs have a session of
their own, so that what is under way does not wait for their commits; a run whose row is locked or
slow is written apart (``lanes``).
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from bos_gateway.lanes import Lane, LogRefused, Pending, SlowLane, StoreFull
from bos_gateway.log_items import Append, NewRun
from bos_gateway.log_session import are_stored, existing_runs, insert_events, insert_runs
from bos_gateway.sessions import session_name
from bos_postgres import connect

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Sequence
    from types import TracebackType
    from typing import Self
    from uuid import UUID

    import asyncpg

    from bos_chassis.telemetry import Telemetry
    from bos_gateway.log_session import Standing
    from bos_gateway.metrics import GatewayMetrics

    Session = asyncpg.Connection[asyncpg.Record]

__all__ = [
    "SCHEMA",
    "Append",
    "LogRefused",
    "LogWriter",
    "LostRun",
    "NewRun",
    "StoreFull",
    "UserLimit",
]

SCHEMA = "gateway"

_STATEMENT_TIMEOUT_S = 5.0
_LOCK_TIMEOUT = "2s"


class LostRun(Exception):
    """The run belongs to another replica now, or has ended; nothing was written."""


class UserLimit(Exception):
    """The user has as many unfinished runs as may be; nothing was written."""


class LogWriter:
    """The one writer of this process. An async context manager; leaving it drops what is pending.

    Args:
        dsn: PostgreSQL with the gateway's schema.
        replica_id: This replica, as in ``runs.replica_id``.
        metrics: Where latency and batch size are recorded.
        telemetry: For the log.
    """

    def __init__(
        self,
        dsn: str,
        replica_id: UUID,
        *,
        metrics: GatewayMetrics,
        telemetry: Telemetry,
    ) -> None:
        self._dsn = dsn
        self._replica_id = replica_id
        self._metrics = metrics
        log = telemetry.logger("bos.gateway.run_log")
        self._log = log
        self._accepts = Lane(self._open, self._write_accepts, _turned_away, log, singly=True)
        self._appends = Lane(self._open, self._write_appends, self._set_apart, log)
        self._apart = SlowLane(self._open, self._write_appends, log)
        self._lanes = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for lane in (self._apart, self._appends, self._accepts):
                await stack.enter_async_context(lane)
            self._lanes = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._lanes.aclose()

    async def accept(self, run: NewRun) -> bool:
        """Store a new run with its first event; returns after the commit.

        Returns:
            False when the user already has a run under this request id; nothing was stored then.

        Raises:
            UserLimit: the user has too many unfinished runs.
            LogRefused: PostgreSQL refuses to store it, or has no room left.
        """
        pending = self._timed(Pending(run))
        self._accepts.put(pending)
        return await pending.done

    def submit(self, append: Append) -> asyncio.Future[bool]:
        """Have events written; what is submitted of one run is written in that order.

        Returns:
            Done after their commit. It fails with LostRun if the run has another owner or has
            ended, or if other events stand at these sequences, and with LogRefused if PostgreSQL
            refuses to store them; then so does whatever was submitted behind them.
        """
        pending = self._timed(Pending(append))
        lane = self._apart if self._apart.holds(append.run_id) else self._appends
        lane.put(pending)
        return pending.done

    async def append(self, append: Append) -> None:
        """Write events; returns after their commit.

        Raises:
            LostRun, LogRefused: see :meth:`submit`.
        """
        await self.submit(append)

    def _timed(self, pending: Pending) -> Pending:
        started = time.perf_counter()
        seconds = self._metrics.append_seconds
        pending.done.add_done_callback(lambda _: seconds.observe(time.perf_counter() - started))
        return pending

    def _set_apart(self, stuck: Sequence[Pending]) -> None:
        """Write these runs, and all that follows of them, where they hold up nobody."""
        for pending in stuck:
            self._apart.put(pending)
        for run_id in {pending.item.run_id for pending in stuck}:
            self._log.warning("run is written apart, its row is locked or slow", run=str(run_id))
            for pending in self._appends.take_out(run_id):
                self._apart.put(pending)

    async def _write_accepts(
        self, session: Session, pending: Sequence[Pending]
    ) -> Sequence[Pending]:
        runs = [each.item for each in pending if isinstance(each.item, NewRun)]
        inserted = await insert_runs(session, self._replica_id, runs)
        created = inserted.created
        if len(created) < len(runs):
            # Stored by an earlier try whose answer was lost, or refused for its request id.
            created |= await existing_runs(session, [run.run_id for run in runs])
        for each, run in zip(pending, runs, strict=True):
            refused = run.run_id in inserted.refused
            each.settle(UserLimit(run.user_id) if refused else run.run_id in created)
        self._metrics.batch_events.observe(len(runs))
        return ()

    async def _write_appends(
        self, session: Session, pending: Sequence[Pending]
    ) -> Sequence[Pending]:
        runs: dict[UUID, list[Pending]] = {}
        for each in pending:
            runs.setdefault(each.item.run_id, []).append(each)
        appends = [[_append(each) for each in found] for found in runs.values()]
        standings = await insert_events(session, self._replica_id, appends)
        self._metrics.batch_events.observe(sum(len(a.rows) for found in appends for a in found))
        locked: list[Pending] = []
        for run_id, found in runs.items():
            standing = standings.get(run_id)
            if standing is not None and standing.written:
                for each in found:
                    each.settle(True)
            else:
                locked += await self._unwritten(session, standing, found)
        return locked

    async def _unwritten(
        self, session: Session, standing: Standing | None, found: Sequence[Pending]
    ) -> Sequence[Pending]:
        """Settle what was not written; what may yet be, because its run is only locked."""
        for number, each in enumerate(found):
            append = _append(each)
            fits = standing is not None and standing.last_sequence == append.first_sequence - 1
            if standing is not None and standing.ours and fits:
                return found[number:]  # only the lock of somebody else was in the way
            # An earlier try whose answer was lost may have written it.
            lost = not await are_stored(session, append)
            each.settle(LostRun(str(append.run_id)) if lost else True)
        return ()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Session]:
        async with connect(
            self._dsn,
            application_name=session_name("writer", self._replica_id),
            schema=SCHEMA,
            statement_timeout_s=_STATEMENT_TIMEOUT_S,
        ) as session:
            # PostgreSQL keeps a plan once it has made it. Made while the tables were empty, it
            # would read them whole for every append; each row that is wanted is known by its key.
            await session.execute(
                f"SET lock_timeout = '{_LOCK_TIMEOUT}'; SET synchronous_commit = on; "
                "SET enable_seqscan = off"
            )
            yield session


def _append(pending: Pending) -> Append:
    assert isinstance(pending.item, Append)
    return pending.item


def _turned_away(stuck: Sequence[Pending]) -> None:
    for pending in stuck:
        pending.settle(LogRefused("The question could not be stored in time; try again."))
