"""Tokens of a day: what a user, and everybody together, may still spend until midnight UTC.

The row of a run says what it holds of the day on which it was accepted: its whole budget, and once
it has ended what its log counted. Upkeep adds the tokens of ended runs to the sums of their days
(``token_days``), each once; an end that does not say what was consumed, such as that of a run that
could not be read any more, counts with all that was held.

Accepting reads the sum and what is in none yet. On this replica nobody else reads them before the
run is stored, and nothing is kept in memory. So the bounds are exact on one replica; together,
replicas may exceed them by the budgets of what they accept at the same moment.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from attrs import define, field

from bos_chassis.auth import LOCAL_USER
from bos_chassis.errors import ResourceExhausted
from bos_gateway.budget import MIN_STEP_TOKENS, PLAN_SHARE, counted
from bos_postgres import execute, fetchrow, fetchval

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    import asyncpg

    from bos.common.v1 import Usage
    from bos.runlog.v1 import LogEvent
    from bos_gateway.run_log import NewRun
    from bos_gateway.settings import GatewaySettings
    from bos_postgres.connections import Session

    Pool = asyncpg.Pool[asyncpg.Record]

# Planning, one step and an answer; what remains of a day may be less than a run's usual budget, but
# with less than this it would only be spent on questions that come to nothing.
MIN_RUN_TOKENS: Final = 5 * MIN_STEP_TOKENS
SETTLED_AT_ONCE: Final = 1000
# Nothing that one run says can make a sum of a day too large for its column.
_MOST: Final = 2**40

_READ = """
SELECT (coalesce((SELECT d.tokens FROM token_days AS d
                  WHERE d.day = today.day AND d.user_id = $1), 0)
        + coalesce((SELECT sum(r.tokens) FROM runs AS r
                    WHERE r.token_day = today.day{of_user}), 0))::bigint AS tokens,
       today.day + 1 AS next_day,
       extract(epoch FROM (today.day + 1)::timestamp AT TIME ZONE 'UTC' - now())
           ::float8 AS resets_in_s
FROM (SELECT (now() AT TIME ZONE 'UTC')::date AS day) AS today
"""
_READ_USER: Final = _READ.format(of_user=" AND r.user_id = $1")
_READ_ALL: Final = _READ.format(of_user="")
_ADD = """
INSERT INTO token_days AS d (day, user_id, tokens)
SELECT coalesce($3, (now() AT TIME ZONE 'UTC')::date), who.user_id, $2
FROM (VALUES ($1::text), ('')) AS who (user_id)
ORDER BY who.user_id
ON CONFLICT (day, user_id) DO UPDATE SET tokens = d.tokens + excluded.tokens
RETURNING day
"""
# Whoever waits here for the lock of another that settles the same run finds it without a day.
# Rows of sums are locked last, and in their order.
_SETTLE = """
WITH due AS MATERIALIZED (
    SELECT run_id, user_id, token_day, tokens FROM runs
    WHERE token_day IS NOT NULL AND finished_at IS NOT NULL
          AND ($1::uuid[] IS NULL OR run_id = ANY ($1))
    ORDER BY run_id LIMIT $2
    FOR NO KEY UPDATE
), settled AS (
    -- An array, and no join, so that this goes by the key however large the table is.
    UPDATE runs SET token_day = NULL WHERE run_id = ANY (ARRAY (SELECT run_id FROM due))
), added AS (
    INSERT INTO token_days AS d (day, user_id, tokens)
    SELECT due.token_day, who.user_id, sum(due.tokens)
    FROM due CROSS JOIN LATERAL (VALUES (due.user_id), ('')) AS who (user_id)
    GROUP BY due.token_day, who.user_id
    ORDER BY due.token_day, who.user_id
    ON CONFLICT (day, user_id) DO UPDATE SET tokens = d.tokens + excluded.tokens
)
SELECT count(*)::int FROM due
"""


class DayLimit(ResourceExhausted):
    """What a user hears when a day's tokens are spent; nothing was written.

    Args:
        limit: The bound that leaves least.
        read: What counts against it, and when there is more again.
        of_user: Whether it is the user's own; of what others consume nothing is told.
    """

    def __init__(self, limit: int, read: asyncpg.Record, *, of_user: bool) -> None:
        used = read["tokens"]
        self.left: int = limit - used
        text = "The model tokens of this installation for today are spent."
        metadata = {"reset_time": f"{read['next_day']}T00:00:00Z"}
        if of_user:
            text = f"You have used {used} of the {limit} model tokens that you have for a day."
            metadata |= {"used_tokens": str(used), "limit_tokens": str(limit)}
        super().__init__(
            f"{text} What questions in work do not need comes back when they end; all of it at "
            "00:00 UTC.",
            reason="USER_DAY_LIMIT" if of_user else "DAY_LIMIT",
            metadata=metadata,
            retry_after_s=read["resets_in_s"],
        )


def held(event: LogEvent) -> int:
    """Tokens that a run holds from its acceptance to its end: its whole budget."""
    return event.run_accepted.settings.max_tokens


def settled(event: LogEvent) -> int | None:
    """What the end of a run counts against its day; None for another event, and if it is untold."""
    metadata = event.run_finished.response.metadata
    return _bounded(metadata.usage) if metadata.max_tokens else None


async def settle(
    session: Session, run_ids: Sequence[UUID] | None = None, *, limit: int = SETTLED_AT_ONCE
) -> int:
    """Add tokens of ended runs to the sums of their days: of all of them, or of ``run_ids``.

    Once for each run, however many do so at the same time; returns how many runs it was.
    """
    count: int = await session.fetchval(_SETTLE, run_ids, limit)
    return count


@define(eq=False)
class Planning:
    """What one plan that nobody runs may consume, and has."""

    tokens: int | None
    """None for no bound."""
    usage: Usage | None = None
    """What it consumed, once that is known."""


@define(eq=False)
class DayBudget:
    """Bounds what is accepted by the tokens that a user, and everybody, may consume in a day."""

    _pool: Pool
    _settings: GatewaySettings
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(init=False, factory=WeakValueDictionary)
    """One for each sum that somebody reads, or waits for, at this moment."""

    @asynccontextmanager
    async def admitted(self, run: NewRun) -> AsyncIterator[NewRun]:
        """The run as it is to be stored by the end of the block.

        It gets a smaller budget if that is all that the day has left.

        Raises:
            DayLimit: what is left of the day is not worth beginning with.
            Unavailable: the store is away.
        """
        async with self._granted(run.user_id, held(run.event), MIN_RUN_TOKENS) as tokens:
            if tokens is not None:
                run.event.run_accepted.settings.max_tokens = tokens
                run = replace(run, counts_for_day=True)
            yield run

    @asynccontextmanager
    async def planning(self, user_id: str) -> AsyncIterator[Planning]:
        """A plan that nobody runs: counts with all that it may consume until the block ends.

        It goes on to do so unless it is said by then what it has consumed.

        Raises:
            DayLimit: what is left of the day is not worth asking the planner with.
            Unavailable: the store is away.
        """
        share = int(self._settings.max_run_tokens * PLAN_SHARE)
        async with self._granted(user_id, share, MIN_STEP_TOKENS) as tokens:
            if tokens is None:
                yield Planning(share or None)
                return
            day = await fetchval(self._pool, _ADD, user_id, tokens, None)
        planning = Planning(tokens)
        try:
            yield planning
        finally:
            if planning.usage is not None:
                await execute(self._pool, _ADD, user_id, _bounded(planning.usage) - tokens, day)

    @asynccontextmanager
    async def _granted(self, user_id: str, wanted: int, least: int) -> AsyncIterator[int | None]:
        """Up to ``wanted`` tokens, to be stored before the block ends; None without a bound.

        Until then nobody else here is granted any of the same sums.
        """
        of_user = self._settings.max_user_day_tokens if user_id != LOCAL_USER else 0
        bounds = ((user_id, _READ_USER, of_user), ("", _READ_ALL, self._settings.max_day_tokens))
        sums: list[DayLimit] = []
        async with AsyncExitStack() as locked:
            for who, sql, limit in bounds:
                if limit:
                    lock = self._locks.setdefault(who, asyncio.Lock())
                    await locked.enter_async_context(lock)
                    read = await fetchrow(self._pool, sql, who)
                    assert read is not None
                    sums.append(DayLimit(limit, read, of_user=bool(who)))
            if not sums:
                yield None
                return
            tightest = min(sums, key=lambda each: each.left)
            tokens = min(wanted, tightest.left)
            if tokens < min(wanted, least):
                raise tightest
            yield tokens


def _bounded(usage: Usage) -> int:
    return max(0, min(counted(usage), _MOST))
