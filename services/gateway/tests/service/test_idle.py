"""What looks for work read: nothing in proportion to runs that wait or have ended."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from bos_gateway.ownership import owners
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.service import migrate_store
from bos_gateway.webhooks import outbox
from bos_postgres import connect

ENDED, WAITING = 20_000, 5_000
ME = uuid4()
LATER = datetime(2099, 1, 1, tzinfo=UTC)
LOOKS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "look": (owners._LOOK, (ME,)),
    "adopt": (owners._ADOPT, (ME, 256, [], [])),
    "bury": (owners._BURY, (ME, LATER)),
    "take": (owners._TAKE, (ME, 3.0)),
    "unowned": (owners._UNOWNED, (ME, [])),
    "release_all": (owners._RELEASE_ALL, (ME,)),
    "due events": (outbox._OLDEST, ()),
    "claim events": (outbox._CLAIM, (16, 4, [], [], 30.0)),
}
GROWING = {"runs", "run_events", "approvals", "run_inputs", "webhook_deliveries"}
_DELIVERIES = """
INSERT INTO webhook_deliveries (webhook_id, user_id, run_id, event, state, due_at, ended_at)
SELECT h.webhook_id, h.user_id, r.run_id, 1, CASE WHEN finished_at IS NULL THEN 1 ELSE 2 END,
       now() + interval '1 h', finished_at
FROM webhooks AS h CROSS JOIN runs AS r
"""
_INSERT = """
INSERT INTO runs (run_id, user_id, request_id, request_digest, question, status, replica_id,
                  retry_at, finished_at)
SELECT gen_random_uuid(), 'u' || g % 100, $1 || g, '', '?', $2, $3, $4, $5
FROM generate_series(1, $6::int) AS g
"""


@pytest.fixture
async def session(postgres_dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    await migrate_store(postgres_dsn)
    async with connect(postgres_dsn, schema=SCHEMA, statement_timeout_s=60) as opened:
        await opened.execute(
            "INSERT INTO replicas VALUES ($1, $2), (gen_random_uuid(), $2), "
            "(gen_random_uuid(), now() - interval '1 h')",
            ME,
            LATER,
        )
        yield opened


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


async def plan_of(
    session: asyncpg.Connection[asyncpg.Record], name: str, *, generic: bool
) -> tuple[int, int]:
    """Rows that the statement's nodes went through at most, and the blocks it touched."""
    sql, arguments = LOOKS[name]
    mode = "force_generic_plan" if generic else "force_custom_plan"
    await session.execute(f"SET plan_cache_mode = {mode}")
    transaction = session.transaction()
    await transaction.start()
    explained = await session.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *arguments)
    await transaction.rollback()
    (plan,) = json.loads(explained)
    rows = 0
    for node in nodes(plan["Plan"]):
        of_runs = node.get("Relation Name") in GROWING
        removed = sum(value for key, value in node.items() if re.match("Rows Removed", key))
        if of_runs:
            rows = max(rows, (node["Actual Rows"] + removed) * node["Actual Loops"])
    return rows, plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]


async def fill(session: asyncpg.Connection[asyncpg.Record]) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    infinity = datetime.max.replace(tzinfo=UTC)
    await session.execute(_INSERT, "ended", 6, uuid4(), yesterday, yesterday, ENDED)
    await session.execute(_INSERT, "waiting", 4, None, infinity, None, WAITING)
    await session.execute("UPDATE runs SET retry_at = 'infinity' WHERE status = 4")
    await session.execute(
        "INSERT INTO approvals (approval_id, run_id, user_id, status, payload, agent_name, tools, "
        "created_at, expire_at) SELECT gen_random_uuid(), run_id, user_id, 1, '', 'a', 't', now(), "
        "now() + interval '1 day' FROM runs WHERE status = 4"
    )
    await session.execute(
        "INSERT INTO webhooks (webhook_id, user_id, url, origin, events, key_id, secret) "
        "VALUES (gen_random_uuid(), 'u1', 'https://a.example/', 'https://a.example:443', '{1}', "
        "'k', '')"
    )
    await session.execute(_DELIVERIES)


@pytest.mark.parametrize("analysed", [True, False])
async def test_looks_read_no_rows_of_runs_that_wait_or_have_ended(
    session: asyncpg.Connection[asyncpg.Record], *, analysed: bool
) -> None:
    """Also by plans that were made for any arguments, and before anything is known of the rows."""
    await fill(session)
    if analysed:
        await session.execute("VACUUM ANALYZE")
    for name in LOOKS:
        for generic in (True, False):
            rows, blocks = await plan_of(session, name, generic=generic)
            assert rows <= 2, (name, generic)
            assert blocks < 200, (name, generic)
    await session.execute("UPDATE runs SET retry_at = now() WHERE status = 4")
    rows, _ = await plan_of(session, "adopt", generic=False)
    assert rows >= WAITING, "and so it would show"


async def test_polling_stays_cheap_while_vacuum_is_blocked(
    postgres_dsn: str, session: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with (
        connect(postgres_dsn, schema=SCHEMA) as holder,
        holder.transaction(isolation="repeatable_read"),
    ):
        await holder.fetchval("SELECT count(*) FROM runs")
        await session.execute(_INSERT, "r", 1, uuid4(), datetime.now(UTC), None, ENDED)
        for status in (2, 3, 5):
            await session.execute("UPDATE runs SET status = $1, updated_at = now()", status)
        await session.execute("UPDATE runs SET status = 6, finished_at = now()")
        for name in ("look", "adopt"):
            _, blocks = await plan_of(session, name, generic=True)
            assert blocks < 200, name
