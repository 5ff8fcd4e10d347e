"""Model tokens that runs consumed, user by user, and the bounds of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg

from bos.gateway.v1 import RUN_STATUS_FAILED, GetSpendResponse, UserSpend
from bos_gateway.settings import GatewaySettings
from bos_postgres import fetch

_MOST_USERS: Final = 100
# Ids of runs begin with their time, so the primary key finds those of the last days.
_SPEND: Final = f"""
SELECT user_id, grouping(user_id) AS is_total, count(*) AS runs,
       count(*) FILTER (WHERE outcome = {RUN_STATUS_FAILED}) AS failed_runs,
       coalesce(sum(tokens) FILTER (WHERE finished_at IS NOT NULL), 0)::bigint AS tokens,
       coalesce(sum(tokens) FILTER (WHERE finished_at IS NULL), 0)::bigint AS held_tokens
FROM runs WHERE run_id >= $1
GROUP BY GROUPING SETS ((user_id), ())
ORDER BY is_total DESC, tokens DESC, runs DESC, user_id LIMIT {_MOST_USERS + 1}
"""  # noqa: S608  our own text


async def spend_of(
    pool: asyncpg.Pool[asyncpg.Record], settings: GatewaySettings, days: int
) -> GetSpendResponse:
    """What the runs that were accepted in the last ``days`` days consumed."""
    start = datetime.now(UTC) - timedelta(days=days)
    response = GetSpendResponse(
        max_run_tokens=settings.max_run_tokens,
        max_user_day_tokens=settings.max_user_day_tokens,
        max_day_tokens=settings.max_day_tokens,
    )
    response.start_time.FromDatetime(start)
    for row in await fetch(pool, _SPEND, UUID(int=int(start.timestamp() * 1000) << 80)):
        spend = UserSpend(
            user_id=row["user_id"] or "",
            runs=row["runs"],
            failed_runs=row["failed_runs"],
            tokens=row["tokens"],
            held_tokens=row["held_tokens"],
        )
        if row["is_total"]:
            response.total.CopyFrom(spend)
        else:
            response.users.append(spend)
    return response
