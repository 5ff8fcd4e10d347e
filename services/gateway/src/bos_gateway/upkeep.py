"""Upkeep of the log, done by one gateway at a time: deletion of what is too old or left over."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from bos_chassis.errors import BosError
from bos_gateway.day_budget import SETTLED_AT_ONCE, settle
from bos_gateway.retention import delete, forget_days, forget_files, too_old
from bos_postgres import acquire, statement_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import asyncpg

    from bos_chassis.telemetry import Telemetry
    from bos_gateway.files import RunFiles
    from bos_gateway.metrics import GatewayMetrics
    from bos_gateway.settings import GatewaySettings
    from bos_postgres.connections import Session

T = TypeVar("T")

_DAY_S = 86400.0
# Between two batches of a backlog, so that the runs under way come first.
_BREATH_S = 0.05
_TIDY_S = 60.0
# Any number of our own; it names the right to do the upkeep of this database.
LOCK = 0x626F73_75706B

# What the statement that ends a run does not take along: texts of answers, inputs written while the
# run was ending, and credentials if a version that knows nothing of them ended it. A minute later
# nothing under way has to do with them. Subqueries, so that each row is looked up by key and runs
# are never searched, however many there are.
_LEFT_OVER = (
    """
    DELETE FROM answers AS a
    WHERE (SELECT r.finished_at IS NULL FROM runs AS r WHERE r.run_id = a.run_id) IS NOT TRUE
    """,
    """
    DELETE FROM run_inputs AS i
    WHERE (SELECT r.finished_at FROM runs AS r WHERE r.run_id = i.run_id)
          < now() - interval '1 minute'
    """,
    """
    DELETE FROM run_secrets AS s
    WHERE (SELECT r.finished_at FROM runs AS r WHERE r.run_id = s.run_id)
          < now() - interval '1 minute'
    """,
)


@dataclass(frozen=True, slots=True)
class UpkeepPlan:
    """What is due when. Times are in seconds after the end of a run."""

    keep_s: float | None
    """Age at which a run is deleted; None for never."""
    batch: int = 100
    """Runs per statement: few enough to hold their rows for milliseconds only."""

    @classmethod
    def of(cls, settings: GatewaySettings) -> UpkeepPlan:
        """As the settings say."""
        days = settings.retention_days
        return cls(None if days is None else days * _DAY_S)


class Upkeep:
    """One round after the other over the runs that have ended.

    Args:
        pool: Connections whose search path is the gateway's schema.
        plan: When to delete.
        metrics: Counts what was removed.
        files: The store of their files; without it, runs with files stay.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        plan: UpkeepPlan,
        metrics: GatewayMetrics,
        files: RunFiles | None = None,
    ) -> None:
        self._files = files
        self._pool = pool
        self._plan = plan
        self._metrics = metrics
        self._tidy_at = 0.0

    async def round(self) -> bool:
        """Do a batch of everything that is due; whether there is more of it.

        Does nothing while another gateway is at it.

        Raises:
            BosError: the database is away.
        """
        settled = await self._alone(settle, 0)
        if time.monotonic() >= self._tidy_at and await self._alone(tidy, False):
            self._tidy_at = time.monotonic() + _TIDY_S
        expired = 0 if self._plan.keep_s is None else await self._expire(self._plan.keep_s)
        return settled == SETTLED_AT_ONCE or expired == self._plan.batch

    async def _expire(self, keep_s: float) -> int:
        """Delete a batch: the files, and then the rows that tell of them.

        The store may take minutes, so nothing of the database is held meanwhile. What is broken
        off, or done by two gateways at once, can be done again.
        """
        batch, files = self._plan.batch, self._files
        nothing: list[asyncpg.Record] = []
        runs = await self._alone(
            lambda session: too_old(session, after_s=keep_s, limit=batch, files=files), nothing
        )
        if not runs:
            return 0
        if files is not None:
            await forget_files(runs, files)
        deleted = await self._alone(lambda session: delete(session, runs), 0)
        self._metrics.expired_runs.inc(deleted)
        return deleted

    async def _alone(self, action: Callable[[Session], Awaitable[T]], otherwise: T) -> T:
        """One statement in a transaction of its own; not while another gateway is at it."""
        async with acquire(self._pool) as session:
            with statement_errors(session):
                async with session.transaction():
                    if not await session.fetchval("SELECT pg_try_advisory_xact_lock($1)", LOCK):
                        return otherwise
                    return await action(session)


async def tidy(session: Session) -> bool:
    """Delete what the ends of runs, and of days, left over."""
    await forget_days(session)
    for statement in _LEFT_OVER:
        await session.execute(statement)
    return True


@asynccontextmanager
async def running_upkeep(
    upkeep: Upkeep, interval_s: float, telemetry: Telemetry
) -> AsyncIterator[None]:
    """Keep the log small while the block runs.

    Args:
        upkeep: What to do.
        interval_s: Seconds between two looks when nothing is due.
        telemetry: For the log.
    """
    log = telemetry.logger("bos.gateway.upkeep")

    async def for_ever() -> None:
        more = False
        while True:
            try:
                more = await upkeep.round()
            except BosError as error:
                more = False
                log.warning("upkeep put off", reason=error.reason)
            except Exception:
                # Nobody's run depends on it; the next round may go better.
                more = False
                log.exception("upkeep failed")
            await asyncio.sleep(min(_BREATH_S, interval_s) if more else interval_s)

    task = asyncio.create_task(for_ever(), name="upkeep")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
