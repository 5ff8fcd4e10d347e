"""Tokens of the day for plans that nobody runs: held before the planner is asked, settled after it.

A dry run has no log, and so nothing that would settle it later: what is held for one whose planner,
or gateway, did not come to an end counts as spent.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from bos_chassis.auth import LOCAL_USER
from bos_gateway.budget import MIN_STEP_TOKENS, PLAN_SHARE, counted
from bos_gateway.day_budget import DayBound, DayLimit
from bos_postgres import execute, fetchrow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import date

    import asyncpg

    from bos.common.v1 import Usage
    from bos_gateway.settings import GatewaySettings

    Pool = asyncpg.Pool[asyncpg.Record]

# By the locks, and in the order, of the statement that accepts runs; see there.
_HOLD = """
WITH today AS MATERIALIZED (
    SELECT (now() AT TIME ZONE 'UTC')::date AS day
), bounded AS (
    SELECT user_id, hashtext(user_id) AS lock_key
    FROM (VALUES ($1::text, $3::bigint), ('', $4::bigint)) AS t (user_id, bound)
    WHERE bound > 0
    ORDER BY lock_key
), counted AS MATERIALIZED (
    SELECT b.user_id, c.tokens
    FROM bounded AS b CROSS JOIN today CROSS JOIN LATERAL admission_of(b.user_id, today.day) AS c
), rest AS (
    SELECT (SELECT $3 - tokens FROM counted WHERE user_id = $1) AS of_user,
           (SELECT $4 - tokens FROM counted WHERE user_id = '') AS of_all
), charged AS (
    INSERT INTO token_days AS d (day, user_id, tokens)
    SELECT today.day, who.user_id, $2::bigint
    FROM today CROSS JOIN rest CROSS JOIN (VALUES ($1), ('')) AS who (user_id)
    WHERE least(rest.of_user, rest.of_all) >= $2
    ORDER BY today.day, who.user_id
    ON CONFLICT (day, user_id) DO UPDATE SET tokens = d.tokens + excluded.tokens
    RETURNING 1
)
SELECT today.day, rest.of_user, rest.of_all, EXISTS (SELECT FROM charged) AS held,
       extract(epoch FROM (today.day + 1)::timestamp AT TIME ZONE 'UTC' - now())
           ::float8 AS resets_in_s
FROM today CROSS JOIN rest
"""
_SETTLE = """
INSERT INTO token_days AS d (day, user_id, tokens)
SELECT $1, who.user_id, $3 FROM (VALUES ($2::text), ('')) AS who (user_id)
ORDER BY who.user_id
ON CONFLICT (day, user_id) DO UPDATE SET tokens = d.tokens + excluded.tokens
"""


class DryRunTokens:
    """What dry runs may consume.

    Args:
        pool: Connections to the store.
        settings: The bounds.
    """

    def __init__(self, pool: Pool, settings: GatewaySettings) -> None:
        self._pool = pool
        self._per_user = settings.max_user_day_tokens
        self._of_all = settings.max_day_tokens
        self._share = int(settings.max_run_tokens * PLAN_SHARE)

    @asynccontextmanager
    async def held(self, user_id: str) -> AsyncIterator[Held]:
        """Hold what one planning may consume; what it did takes the place of that, if it is known.

        Raises:
            DayLimit: what is left of the day is not worth asking the planner with.
            Unavailable: the store is away.
        """
        per_user = self._per_user if user_id != LOCAL_USER else 0
        if not (per_user or self._of_all):
            yield Held(self._share or None)
            return
        day, tokens = await self._hold(user_id, per_user)
        held = Held(tokens)
        try:
            yield held
        finally:
            if held.usage is not None:
                spent = counted(held.usage)
                await execute(self._pool, _SETTLE, day, user_id, spent - tokens)

    async def _hold(self, user_id: str, per_user: int) -> tuple[date, int]:
        tokens = self._share
        while True:
            row: Any = await fetchrow(self._pool, _HOLD, user_id, tokens, per_user, self._of_all)
            if row["held"]:
                return row["day"], tokens
            limit = DayLimit(
                _bound(per_user, row["of_user"]),
                _bound(self._of_all, row["of_all"]),
                row["resets_in_s"],
            )
            # Less than before in each round, as others take of it meanwhile.
            if limit.left >= tokens or limit.left < MIN_STEP_TOKENS:
                raise limit
            tokens = limit.left


class Held:
    """What one dry run may consume; None for no bound."""

    def __init__(self, tokens: int | None) -> None:
        self.tokens = tokens
        self.usage: Usage | None = None
        """What it consumed, once that is known."""


def _bound(limit: int, left: int | None) -> DayBound | None:
    return None if left is None else DayBound(limit, left)
