"""Requests for approval of all users, without the column that holds what is proposed."""

from __future__ import annotations

from typing import Final

import asyncpg

from bos.gateway.v1 import ApprovalOverview, ListUserApprovalsRequest
from bos_chassis.paging import after_time, time_token
from bos_postgres import fetch

_DEFAULT_PAGE: Final = 50
_PAGE: Final = """
SELECT approval_id, run_id, user_id, agent_name, tools, status, created_at, expire_at, responded_at,
       decided_by, instructions <> '' AS is_sent_back
FROM approvals
WHERE (created_at, approval_id) < ($1, $2) AND $3::smallint IN (0::smallint, status)
ORDER BY created_at DESC, approval_id DESC
LIMIT $4
"""


async def page_of_approvals(
    pool: asyncpg.Pool[asyncpg.Record], request: ListUserApprovalsRequest
) -> tuple[list[ApprovalOverview], str]:
    """A page of requests, newest first, and the token of the next page.

    Raises:
        InvalidArgument: the page token is not one of ours.
    """
    size = request.page_size or _DEFAULT_PAGE
    at, key = after_time(request.page_token)
    rows = await fetch(pool, _PAGE, at, key, request.status, size + 1)
    token = ""
    if len(rows) > size:
        last = rows[size - 1]
        token = time_token(last["created_at"], last["approval_id"])
    return [_overview(row) for row in rows[:size]], token


def _overview(row: asyncpg.Record) -> ApprovalOverview:
    overview = ApprovalOverview(
        approval_id=str(row["approval_id"]),
        run_id=str(row["run_id"]),
        user_id=row["user_id"],
        agent_name=row["agent_name"],
        tools=[tool for tool in row["tools"].split(",") if tool],
        status=row["status"],
        decided_by=row["decided_by"],
        is_sent_back=row["is_sent_back"],
    )
    overview.create_time.FromDatetime(row["created_at"])
    overview.expire_time.FromDatetime(row["expire_at"])
    if row["responded_at"] is not None:
        overview.respond_time.FromDatetime(row["responded_at"])
    return overview
