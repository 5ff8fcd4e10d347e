"""Rows of the runs of all users, without the columns that hold content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import asyncpg

from bos.gateway import v1 as gateway
from bos.gateway.v1 import RunOverview
from bos_chassis.paging import decoded, encoded, foreign_token
from bos_errors import InvalidArgument
from bos_gateway.operator.overview import overview_of_row
from bos_gateway.run_log.reader import UNDER_WAY, not_found
from bos_postgres import fetch

_DEFAULT_PAGE: Final = 50
# Of the events beside the row, few and short ones are read: a page holds many runs.
_PAYLOAD_BYTES: Final = 16 * 1024
_PLANS: Final = 4
# Pages of filters that only the events of a run decide: so many runs are looked into.
_SCANNED_AT_ONCE: Final = 100
_SCANS: Final = 20
_FIRST: Final = UUID(int=2**128 - 1)
# Ids of runs grow with time, so the primary key has them in their order. A response says what went
# wrong if its run FAILED (8) or was CANCELLED (9).
_ROWS: Final = f"""
SELECT r.*,
    ARRAY (
        SELECT e.payload FROM run_events AS e
        WHERE e.run_id = r.run_id AND e.kind = 'planned'
              AND octet_length(e.payload) <= {_PAYLOAD_BYTES}
        ORDER BY e.sequence LIMIT {_PLANS}
    ) AS plans,
    (
        SELECT e.payload FROM run_events AS e
        WHERE e.run_id = r.run_id AND e.sequence = r.last_sequence AND r.outcome IN (8, 9)
              AND e.kind = 'run_finished' AND octet_length(e.payload) <= {_PAYLOAD_BYTES}
    ) AS ended
FROM (
    SELECT run_id, user_id, status, outcome, created_at, updated_at, finished_at, last_sequence,
           tokens
    FROM runs WHERE {{condition}}
    ORDER BY run_id DESC LIMIT $2
) AS r
ORDER BY r.run_id DESC
"""  # noqa: S608  our own text


async def page_of_runs(
    pool: asyncpg.Pool[asyncpg.Record], request: gateway.ListUserRunsRequest
) -> tuple[list[RunOverview], str]:
    """A page of the runs of all users, newest first, and the token of the next page.

    Raises:
        InvalidArgument: the page token is not one of ours, or the owner is no text of a user's id.
    """
    if "\0" in request.owner_id:
        raise InvalidArgument.field("owner_id", "must not contain U+0000")
    size, after = request.page_size or _DEFAULT_PAGE, _after(request.page_token)
    if not (request.agent or request.error_type):
        rows = await _rows(pool, request, after, size + 1)
        token = encoded(str(rows[size - 1]["run_id"])) if len(rows) > size else ""
        return [overview_of_row(row) for row in rows[:size]], token
    found: list[RunOverview] = []
    for _ in range(_SCANS):
        rows = await _rows(pool, request, after, _SCANNED_AT_ONCE)
        for row in rows:
            after, overview = row["run_id"], overview_of_row(row)
            if _matches(overview, request):
                found.append(overview)
                if len(found) == size:
                    return found, encoded(str(after))
        if len(rows) < _SCANNED_AT_ONCE:
            return found, ""
    return found, encoded(str(after))


def _matches(overview: RunOverview, request: gateway.ListUserRunsRequest) -> bool:
    return (not request.agent or request.agent in overview.agents) and (
        not request.error_type or request.error_type == overview.error_type
    )


async def _rows(
    pool: asyncpg.Pool[asyncpg.Record],
    request: gateway.ListUserRunsRequest,
    after: UUID,
    limit: int,
) -> Sequence[asyncpg.Record]:
    condition, arguments = "run_id < $1", list[object]([after, limit])
    if request.status:
        arguments.append(request.status)
        under_way = request.status in UNDER_WAY
        condition += f" AND {'finished_at IS NULL AND status' if under_way else 'outcome'} = $3"
    if request.owner_id:
        arguments.append(request.owner_id)
        condition += f" AND user_id = ${len(arguments)}"
    if request.min_tokens:
        arguments.append(request.min_tokens)
        condition += f" AND tokens >= ${len(arguments)}"
    return await fetch(pool, _ROWS.format(condition=condition), *arguments)


async def row_of_run(pool: asyncpg.Pool[asyncpg.Record], run_id: str) -> asyncpg.Record:
    """The row of one run.

    Raises:
        NotFound: there is none.
    """
    try:
        key = UUID(run_id)
    except ValueError:  # no run can have such an id
        raise not_found(run_id) from None
    rows = await fetch(pool, _ROWS.format(condition="run_id = $1"), key, 1)
    if not rows:
        raise not_found(run_id)
    return rows[0]


def _after(token: str) -> UUID:
    try:
        return UUID(decoded(token)) if token else _FIRST
    except ValueError:
        raise foreign_token() from None
