"""Tokens of a day: what a user, and everybody together, may still spend until midnight UTC.

The row of a run says what it holds of the day on which it was accepted: its whole budget, and once
it has ended what its log counted. Upkeep adds the tokens of ended runs to the sums of their days
(``token_days``), each once; an end that does not say what was consumed, such as that of a run that
could not be read any more, counts with all that was held.

Accepting reads the sums, and what is in none of them yet, without a lock and at most once a second
for each user; only a refusal is always read anew. What this process accepts meanwhile is counted by
it. So the bounds are exact on one replica; together, replicas may exceed them by the budgets of
what they accept in the same second.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Final

from bos.runlog.v1 import LogEvent
from bos_chassis.auth import LOCAL_USER
from bos_chassis.errors import ResourceExhausted
from bos_gateway.budget import MIN_STEP_TOKENS, PLAN_SHARE, counted
from bos_gateway.clock import monotonic
from bos_postgres import execute, fetchrow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    import asyncpg

    from bos.common.v1 import Usage
    from bos_gateway.run_log import NewRun
    from bos_gateway.settings import GatewaySettings
    from bos_postgres.connections import Session

    Pool = asyncpg.Pool[asyncpg.Record]

# Planning, one step and an answer; what remains of a day may be less than a run's usual budget, but
# with less than this it would only be spent on questions that come to nothing.
MIN_RUN_TOKENS: Final = 5 * MIN_STEP_TOKENS
SETTLED_AT_ONCE: Final = 1000
_FRESH_S: Final = 1.0
_MAX_SUMS: Final = 10_000
# Nothing that one run says can make a sum of a day too large for its column.
_MOST: Final = 2**40
_EVERYBODY: Final = ""

_READ = """
WITH today AS (SELECT (now() AT TIME ZONE 'UTC')::date AS day)
SELECT (coalesce((SELECT d.tokens FROM token_days AS d
                  WHERE d.day = today.day AND d.user_id = $1), 0)
        + coalesce((SELECT sum(r.tokens) FROM runs AS r
                    WHERE r.token_day = today.day{of_user}), 0))::bigint AS tokens,
       today.day + 1 AS next_day,
       extract(epoch FROM (today.day + 1)::timestamp AT TIME ZONE 'UTC' - now())
           ::float8 AS resets_in_s
FROM today
"""
_READ_USER: Final = _READ.format(of_user=" AND r.user_id = $1")
_READ_ALL: Final = _READ.format(of_user="")
_ADD = """
INSERT INTO token_days AS d (day, user_id, tokens)
SELECT (now() AT TIME ZONE 'UTC')::date, who.user_id, $2
FROM (VALUES ($1::text), ('')) AS who (user_id)
ORDER BY who.user_id
ON CONFLICT (day, user_id) DO UPDATE SET tokens = d.tokens + excluded.tokens
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
        left: How much.
        of_user: Whether it is the user's own; of what others consume nothing is told.
        next_day: When there is more again.
        in_s: Seconds until then, by the clock of the database.
    """

    def __init__(
        self, limit: int, left: int, *, of_user: bool, next_day: date, in_s: float
    ) -> None:
        self.left = left
        text, used = "The model tokens of this installation for today are spent.", limit - left
        metadata = {"reset_time": f"{next_day}T00:00:00Z"}
        if of_user:
            text = f"You have used {used} of the {limit} model tokens that you have for a day."
            metadata |= {"used_tokens": str(used), "limit_tokens": str(limit)}
        super().__init__(
            f"{text} What questions in work do not need comes back when they end; all of it at "
            "00:00 UTC.",
            reason="USER_DAY_LIMIT" if of_user else "DAY_LIMIT",
            metadata=metadata,
            retry_after_s=in_s,
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


class DayBudget:
    """Bounds what is accepted by the tokens that a user, and everybody, may consume in a day.

    Args:
        pool: Connections whose search path is the gateway's schema.
        settings: The bounds.
    """

    def __init__(self, pool: Pool, settings: GatewaySettings) -> None:
        self._pool = pool
        self._per_user = settings.max_user_day_tokens
        self._of_all = settings.max_day_tokens
        self._share = int(settings.max_run_tokens * PLAN_SHARE)
        self._sums: dict[str, _Sum] = {}

    @asynccontextmanager
    async def admitted(self, run: NewRun) -> AsyncIterator[NewRun]:
        """The run as it may be stored, with a smaller budget if that is all that the day has left.

        Raises:
            DayLimit: what is left of the day is not worth beginning with.
            Unavailable: the store is away.
        """
        budget = held(run.event)
        async with self._held(run.user_id, budget, MIN_RUN_TOKENS) as tokens:
            yield run if tokens is None else _with_tokens(run, tokens)

    @asynccontextmanager
    async def planning(self, user_id: str) -> AsyncIterator[Held]:
        """What a plan that nobody runs may consume; counted when the block ends.

        Without word of what it consumed it counts with all that it might have.

        Raises:
            DayLimit: what is left of the day is not worth asking the planner with.
            Unavailable: the store is away.
        """
        async with self._held(user_id, self._share, MIN_STEP_TOKENS) as tokens:
            planning = Held(self._share or None if tokens is None else tokens)
            try:
                yield planning
            finally:
                if tokens is not None:
                    spent = tokens if planning.usage is None else _bounded(planning.usage)
                    await execute(self._pool, _ADD, user_id, spent)

    @asynccontextmanager
    async def _held(self, user_id: str, wanted: int, least: int) -> AsyncIterator[int | None]:
        """Count up to ``wanted`` tokens as spent while the block runs; None without a bound."""
        per_user = self._per_user if user_id != LOCAL_USER else 0
        bounds = ((user_id, per_user), (_EVERYBODY, self._of_all))
        sums = [self._sum(who, limit) for who, limit in bounds if limit]
        if not sums:
            yield None
            return
        now = monotonic()
        for not_before in (now - _FRESH_S, now):
            for one in sums:
                await one.read(self._pool, not_before)
            tightest = min(sums, key=lambda each: each.left)
            if tightest.left >= wanted:
                break
        tokens = min(wanted, tightest.left)
        if tokens < min(wanted, least):
            raise tightest.refusal()
        hold = _Hold(tokens)
        for one in sums:
            one.held.append(hold)
        try:
            yield tokens
        finally:
            hold.stored_at = monotonic()

    def _sum(self, who: str, limit: int) -> _Sum:
        one = self._sums.pop(who, None) or _Sum(who, limit)
        self._sums[who] = one  # the one that was asked for last comes last
        if len(self._sums) > _MAX_SUMS:
            del self._sums[next(iter(self._sums))]
        return one


class Held:
    """What one plan that nobody runs may consume; None for no bound."""

    def __init__(self, tokens: int | None) -> None:
        self.tokens = tokens
        self.usage: Usage | None = None
        """What it consumed, once that is known."""


@dataclass(slots=True, eq=False)
class _Hold:
    """Tokens of something that is being accepted, or was of late."""

    tokens: int
    stored_at: float | None = None


class _Sum:
    """What is spent and held of the day, by one user or by everybody, and how much may be."""

    def __init__(self, who: str, limit: int) -> None:
        self.held: list[_Hold] = []
        """What may not be in what was read."""
        self._who = who
        self._limit = limit
        self._stored = 0
        self._next_day = date.min
        self._read_at = self._resets_at = -math.inf
        self._reading = asyncio.Lock()

    @property
    def left(self) -> int:
        """Also negative: a run may consume more than it held."""
        return self._limit - self._stored - sum(hold.tokens for hold in self.held)

    async def read(self, pool: Pool, not_before: float) -> None:
        """Read what is stored, unless that was done after ``not_before`` and on this day."""
        async with self._reading:
            sent = monotonic()
            if self._read_at >= not_before and sent < self._resets_at:
                return
            sql = _READ_ALL if self._who == _EVERYBODY else _READ_USER
            row = await fetchrow(pool, sql, self._who)
            assert row is not None
            self._stored, self._next_day = row["tokens"], row["next_day"]
            self._read_at, self._resets_at = sent, sent + row["resets_in_s"]
            # What was stored by then has been read; of everything else nobody can tell.
            self.held = [h for h in self.held if h.stored_at is None or h.stored_at >= sent]

    def refusal(self) -> DayLimit:
        """What whoever wants more than is left is told."""
        in_s = max(0.0, self._resets_at - monotonic())
        of_user = self._who != _EVERYBODY
        return DayLimit(self._limit, self.left, of_user=of_user, next_day=self._next_day, in_s=in_s)


def _bounded(usage: Usage) -> int:
    return max(0, min(counted(usage), _MOST))


def _with_tokens(run: NewRun, tokens: int) -> NewRun:
    event = LogEvent()
    event.CopyFrom(run.event)
    event.run_accepted.settings.max_tokens = tokens
    return replace(run, event=event, counts_for_day=True)
