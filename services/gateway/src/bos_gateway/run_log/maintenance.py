"""Maintenance of the run log by one gateway at a time: deletes what is too old or left over."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from attrs import define, field

from bos.gateway.v1 import WEBHOOK_OUTCOME_GONE
from bos_chassis.concurrency.periodic_tasks import periodic_tasks
from bos_gateway.run_log.quota import SETTLED_AT_ONCE, settle
from bos_gateway.run_log.retention import delete, forget_days, forget_files, too_old
from bos_postgres import acquire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    import asyncpg

    from bos_chassis.telemetry import Telemetry
    from bos_gateway.metrics import GatewayMetrics
    from bos_gateway.run_log.run_files import RunFiles
    from bos_postgres.connections import Session

T = TypeVar("T")

_DAY_S = 86400.0
# Between two batches of a backlog, so that the runs under way come first.
_BATCH_PAUSE_S = 0.05
_TIDY_S = 60.0
# Any number of our own; it names the right to do the maintenance of this database.
LOCK = 0x626F73_75706B

# What the statement that ends a run does not take along: texts of answers, inputs written while the
# run was ending, and credentials if a version that knows nothing of them ended it. A minute later
# nothing under way has to do with them. Subqueries, so that each row is looked up by key and runs
# are never searched, however many there are.
_LEFT_OVER = """
DELETE FROM {table} AS left_over
WHERE coalesce((SELECT coalesce(r.finished_at, 'infinity') FROM runs AS r
                WHERE r.run_id = left_over.run_id), '-infinity') < now() - interval '{age}'
"""
# What was written for a webhook while it was being deleted, or disabled, ends here too.
_OLD_DELIVERIES = """
DELETE FROM webhook_deliveries WHERE delivery_id IN (
    SELECT delivery_id FROM webhook_deliveries
    WHERE ended_at < now() - make_interval(secs => $1) ORDER BY ended_at LIMIT 10000
)
"""
_ORPHANED_DELIVERIES = """
DELETE FROM webhook_deliveries AS d WHERE state = 1
       AND NOT EXISTS (SELECT FROM webhooks AS h WHERE h.webhook_id = d.webhook_id)
"""
_UNWANTED_DELIVERIES = f"""
UPDATE webhook_deliveries AS d
SET state = 3, outcome = {WEBHOOK_OUTCOME_GONE}, ended_at = now()
FROM webhooks AS h
WHERE h.webhook_id = d.webhook_id AND h.disabled_at IS NOT NULL AND d.state = 1
      AND d.due_at < now()
"""  # noqa: S608  our own text


@define(eq=False)
class Maintenance:
    """Rounds of maintenance over the runs that have ended."""

    _pool: asyncpg.Pool[asyncpg.Record]
    _keep_days: float | None
    """Days from its end after which a run is deleted; None for never."""
    _metrics: GatewayMetrics
    _files: RunFiles | None = None
    """The store of their files; without it, runs with files stay."""
    _batch: int = 100
    """Runs per statement: few enough to hold their rows for milliseconds only."""
    _delivery_days: float = 7.0
    """Days from its end after which a delivery to a webhook is no longer listed."""
    _tidy_at: float = field(init=False, default=0.0)

    async def round(self) -> bool:
        """Do a batch of everything that is due; whether there is more of it.

        Does nothing while another gateway is at it.

        Raises:
            BosError: the database is away.
        """
        settled = await self._alone(settle)
        if time.monotonic() >= self._tidy_at and await self._alone(self._tidy):
            self._tidy_at = time.monotonic() + _TIDY_S
        expired = await self._expire()
        return settled == SETTLED_AT_ONCE or expired == self._batch

    async def _tidy(self, session: Session) -> bool:
        await tidy(session)
        await session.execute(_ORPHANED_DELIVERIES)
        await session.execute(_UNWANTED_DELIVERIES)
        await session.execute(_OLD_DELIVERIES, self._delivery_days * _DAY_S)
        return True

    async def _expire(self) -> int:
        """Delete a batch: the files, and then the rows that name them.

        The store may take minutes, so nothing of the database is held meanwhile. What is broken
        off, or done by two gateways at once, can be done again.
        """
        if self._keep_days is None:
            return 0
        after_s, files = self._keep_days * _DAY_S, self._files
        find = partial(too_old, after_s=after_s, limit=self._batch, files=files)
        runs = await self._alone(find)
        if not runs:
            return 0
        if files is not None:
            await forget_files(runs, files)
        deleted = await self._alone(partial(delete, runs=runs)) or 0
        self._metrics.expired_runs.inc(deleted)
        return deleted

    async def _alone(self, action: Callable[[Session], Awaitable[T]]) -> T | None:
        """In a transaction of its own; None, and nothing done, while another gateway is at it."""
        async with acquire(self._pool) as session, session.transaction():
            if await session.fetchval("SELECT pg_try_advisory_xact_lock($1)", LOCK):
                return await action(session)
        return None


async def tidy(session: Session) -> bool:
    """Delete rows left over from ended runs and past days."""
    await forget_days(session)
    for table, age in (("answers", "0 s"), ("run_inputs", "1 min"), ("run_secrets", "1 min")):
        await session.execute(_LEFT_OVER.format(table=table, age=age))
    return True


def running_maintenance(
    maintenance: Maintenance, interval_s: float, telemetry: Telemetry
) -> AbstractAsyncContextManager[None]:
    """Keep the log small while the block runs; between looks that find nothing is the interval."""

    async def look() -> None:
        more = await maintenance.round()
        await asyncio.sleep(min(_BATCH_PAUSE_S, interval_s) if more else interval_s)

    log = telemetry.logger("bos.gateway.maintenance")
    return periodic_tasks(log, {"maintenance": look}, retry_s=interval_s)
