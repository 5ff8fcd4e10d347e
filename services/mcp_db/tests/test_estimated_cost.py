"""What a query may cost by the planner's own estimate, asked before it runs."""

from pathlib import Path

import asyncpg
from mcp_db_rig import call, postgres_database, running, sqlite_database

CHEAP = "SELECT count(*) FROM customers"
DEAR = "SELECT count(*) FROM orders AS a, orders AS b, orders AS c, orders AS d"
LARGE = "SELECT a.mood, count(*) FROM orders AS a, orders AS b GROUP BY a.mood"
EARLY = "SELECT a.order_id FROM orders AS a, orders"


async def test_costly_queries_are_refused(
    reader_dsn: str, postgres_admin: asyncpg.Connection
) -> None:
    await postgres_admin.execute("ANALYZE")
    async with running({"main": postgres_database(reader_dsn)}, max_estimated_cost=1_000) as (
        client,
        telemetry,
    ):
        cheap = await call(client, "mcp_db_query", query=CHEAP)
        dear = await call(client, "mcp_db_query", query=DEAR)
        early = await call(client, "mcp_db_query", query=EARLY)

    assert cheap["data"] == [[3]]
    assert early["success"]  # the row limit is part of the estimate
    assert dear["error"]["reason"] == "QUERY_REFUSED"
    assert [violation["rule"] for violation in dear["violations"]] == ["TOO_EXPENSIVE"]
    assert "at most 1,000" in dear["error"]["message"]
    assert "filter earlier" in dear["error"]["message"]
    refused = telemetry.registry.get_sample_value(
        "bos_db_guard_refusals_total", {"rule": "TOO_EXPENSIVE"}
    )
    assert refused == 1


async def test_without_a_limit_only_hopeless_queries_are_refused(
    reader_dsn: str, postgres_admin: asyncpg.Connection
) -> None:
    await postgres_admin.execute("ANALYZE")
    async with running({"main": postgres_database(reader_dsn)}) as (client, _):
        large = await call(client, "mcp_db_query", query=LARGE)
        dear = await call(client, "mcp_db_query", query=DEAR)

    assert large["success"], large
    assert [violation["rule"] for violation in dear["violations"]] == ["TOO_EXPENSIVE"]


async def test_zero_asks_for_no_estimate(reader_dsn: str) -> None:
    database = {"main": postgres_database(reader_dsn)}
    async with running(database, timeout_s=0.3, max_estimated_cost=0) as (client, _):
        dear = await call(client, "mcp_db_query", query=DEAR)

    assert dear["error"]["reason"] == "QUERY_TIMED_OUT"


async def test_a_planner_without_costs_is_logged_at_start(sqlite_file: Path) -> None:
    async with running({"main": sqlite_database(sqlite_file)}, max_estimated_cost=1) as (
        client,
        telemetry,
    ):
        answer = await call(client, "mcp_db_query", query=CHEAP)

    assert answer["data"] == [[3]]
    assert [e["database"] for e in telemetry.logs if "estimated cost" in e["event"]] == ["main"]
