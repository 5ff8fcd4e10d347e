"""Tokens of ended runs, added to the sums of their days: each run once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bos_gateway.core.budget import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from bos.common.v1 import Usage
    from bos.runlog.v1 import LogEvent
    from bos_postgres.connections import Session

SETTLED_AT_ONCE: Final = 1000
# Nothing that one run says can make a sum of a day too large for its column.
_MOST: Final = 2**40
# A replica waiting here for the lock of another that settles the same run finds it without a day.
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


def held(event: LogEvent) -> int:
    """Tokens that a run holds from its acceptance to its end: its whole budget."""
    return event.run_accepted.settings.max_tokens


def settled(event: LogEvent) -> int | None:
    """Tokens that a run consumed, which count against its day; None for others, and if unknown."""
    metadata = event.run_finished.response.metadata
    known = metadata.max_tokens or metadata.HasField("usage")
    return counted_tokens(metadata.usage) if known else None


async def settle(
    session: Session, run_ids: Sequence[UUID] | None = None, *, limit: int = SETTLED_AT_ONCE
) -> int:
    """Add tokens of ended runs to the sums of their days: of all of them, or of ``run_ids``.

    Once for each run, however many do so at the same time; returns how many runs it was.
    """
    count: int = await session.fetchval(_SETTLE, run_ids, limit)
    return count


def counted_tokens(usage: Usage) -> int:
    """Tokens that a call consumed, within what the column of a sum can take."""
    return max(0, min(counted(usage), _MOST))
