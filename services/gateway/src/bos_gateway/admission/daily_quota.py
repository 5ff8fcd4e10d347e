"""Daily token quota per user and in total, until midnight UTC.

The row of a run says what it holds of the day on which it was accepted: its whole budget, and once
it has ended what its log counted. Maintenance adds the tokens of ended runs to the sums of their
days (``token_days``), each once; an end that does not say what was consumed, such as that
of a run that could not be read any more, counts with all that was held.

Accepting reads the sum and what is in none yet. On this replica no other run reads them before the
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

from bos_chassis.auth.callers import LOCAL_USER
from bos_errors import ResourceExhausted
from bos_gateway.core.budget import MIN_STEP_TOKENS, PLAN_SHARE
from bos_gateway.run_log.quota import counted_tokens, held
from bos_postgres import execute, fetchrow, fetchval

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

    from bos.common.v1 import Usage
    from bos_gateway.run_log.records import NewRun
    from bos_gateway.settings import GatewaySettings

    Pool = asyncpg.Pool[asyncpg.Record]

# Planning, one step and an answer; what remains of a day may be less than a run's usual budget, but
# with less than this it would only be spent on questions that come to nothing.
MIN_RUN_TOKENS: Final = 5 * MIN_STEP_TOKENS

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


class DayLimit(ResourceExhausted):
    """Refusal when a day's tokens are spent; nothing was written.

    Args:
        limit: The bound that leaves least.
        read: What counts against it, and when there is more again.
        of_user: Whether it is the user's own; nothing is said of what others consume.
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


@define(eq=False)
class Planning:
    """Token budget and usage of a dry run, whose plan is not run."""

    tokens: int | None
    """None for no bound."""
    usage: Usage | None = None
    """What it consumed, once that is known."""


@define(eq=False)
class DayBudget:
    """Bounds admission by the tokens that a user, and all users together, may consume in a day."""

    _pool: Pool
    _settings: GatewaySettings
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(init=False, factory=WeakValueDictionary)
    """One for each sum that an acceptance reads, or waits for, at this moment."""

    @asynccontextmanager
    async def admitted(self, run: NewRun) -> AsyncIterator[NewRun]:
        """Run to be stored by the block, with its tokens reserved in its day.

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
        """Budget of a dry run: counts with all that it may consume until the block ends.

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
                await execute(
                    self._pool, _ADD, user_id, counted_tokens(planning.usage) - tokens, day
                )

    @asynccontextmanager
    async def _granted(self, user_id: str, wanted: int, least: int) -> AsyncIterator[int | None]:
        """Up to ``wanted`` tokens, to be stored before the block ends; None without a bound.

        Until then no other run here is granted any of the same sums.
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
