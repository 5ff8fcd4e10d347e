"""Run log writer: one per process, group commit, fenced by owner and epoch.

Everything pending, of every run, goes to PostgreSQL in one statement without BEGIN and COMMIT, and
every commit waits for the disk. The statement locks the rows of its runs and checks that this
replica owns them at that epoch and that their logs end where the new events begin. Events of a run
that is no longer ours are not written and raise :class:`LostRun`, for that run alone. A write whose
answer was lost is repeated: finding our own events in place is success. New runs have a session of
their own, so that what is under way does not wait for their commits; a run whose row is locked is
tried again later, and one that is slow is written apart (``lanes``).
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import groupby
from typing import TYPE_CHECKING

from attrs import define, field

from bos_chassis.metrics import current_exemplar
from bos_gateway.run_log.lanes import Item, Lane, Pending
from bos_gateway.run_log.session import SCHEMA, session_name
from bos_gateway.run_log.statements import are_stored, insert_events, insert_runs
from bos_postgres import connect

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Sequence
    from typing import Self
    from uuid import UUID

    from bos_chassis.telemetry import Telemetry
    from bos_gateway.metrics import GatewayMetrics
    from bos_gateway.run_log.records import Append, NewRun
    from bos_gateway.run_log.statements import Session

_STATEMENT_TIMEOUT_S = 5.0
_LOCK_TIMEOUT = "2s"


class LostRun(Exception):
    """The run belongs to another replica now, or has ended; nothing was written."""


class UserLimit(Exception):
    """The user has as many unfinished runs as may be; nothing was written."""


@define(eq=False)
class LogWriter:
    """The one writer of this process, an async context manager; leaving drops what is pending."""

    _dsn: str = field(repr=False)
    """PostgreSQL with the gateway's schema."""
    _replica_id: UUID
    """This replica, as in ``runs.replica_id``."""
    _metrics: GatewayMetrics = field(kw_only=True)
    """Where latency and batch size are recorded."""
    _telemetry: Telemetry = field(kw_only=True)
    _accepts: Lane[NewRun] = field(init=False)
    _appends: Lane[Append] = field(init=False)
    _lanes: AsyncExitStack = field(init=False, factory=AsyncExitStack)

    async def __aenter__(self) -> Self:
        log = self._telemetry.logger("bos.gateway.run_log")
        failed = self._metrics.run_log_failures
        apart = Lane(self._open, self._write_appends, log, apart=True, failed_writes=failed)
        self._appends = Lane(
            self._open, self._write_appends, log, aside=apart, failed_writes=failed
        )
        self._accepts = Lane(self._open, self._write_accepts, log, failed_writes=failed)
        for lane in (apart, self._appends, self._accepts):
            await self._lanes.enter_async_context(lane.running())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._lanes.aclose()

    async def accept(self, run: NewRun) -> bool:
        """Store a new run with its first event; returns after the commit.

        Returns:
            False when the user already has a run under this request id; nothing was stored then.

        Raises:
            UserLimit: the user has too many unfinished runs.
            LogRefused: PostgreSQL refuses to store it, or has no room left.
        """
        return await self._put(self._accepts, run)

    def submit(self, append: Append) -> asyncio.Future[bool]:
        """Submit events for writing; those of one run are written in the order of submission.

        Returns:
            Done after their commit. It fails with LostRun if the run has another owner or has
            ended, or if other events stand at these sequences, and with LogRefused if PostgreSQL
            refuses to store them; then so do all submitted behind them.
        """
        return self._put(self._appends, append)

    async def append(self, append: Append) -> None:
        """Write events; returns after their commit.

        Raises:
            LostRun, LogRefused: see :meth:`submit`.
        """
        await self.submit(append)

    def _put(self, lane: Lane[Item], item: Item) -> asyncio.Future[bool]:
        pending = Pending(item)
        started = time.perf_counter()
        seconds = self._metrics.append_seconds
        exemplar = current_exemplar()
        pending.done.add_done_callback(
            lambda _: seconds.observe(time.perf_counter() - started, exemplar)
        )
        lane.put(pending)
        return pending.done

    async def _write_accepts(self, session: Session, batch: Sequence[Pending[NewRun]]) -> None:
        runs = [each.item for each in batch]
        stored, refused = await insert_runs(session, self._replica_id, runs)
        for each in batch:
            run_id = each.item.run_id
            each.settle(UserLimit(each.item.user_id) if run_id in refused else run_id in stored)
        self._metrics.batch_events.observe(len(batch))

    async def _write_appends(self, session: Session, batch: Sequence[Pending[Append]]) -> None:
        runs = [list(found) for _, found in groupby(batch, key=lambda each: each.item.run_id)]
        appends = [[each.item for each in found] for found in runs]
        standings = await insert_events(session, self._replica_id, appends)
        self._metrics.batch_events.observe(sum(len(each.item.rows) for each in batch))
        for found in runs:
            standing = standings[found[0].item.run_id]
            for each in found:
                if standing.written:
                    each.settle(True)
                elif standing.ours and standing.last_sequence == each.item.first_sequence - 1:
                    break  # only the lock of another session was in the way: it may yet be written
                else:
                    # An earlier try whose answer was lost may have written it.
                    stored = await are_stored(session, each.item)
                    each.settle(True if stored else LostRun(str(each.item.run_id)))

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
