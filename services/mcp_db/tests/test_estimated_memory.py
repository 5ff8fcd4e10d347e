"""What aggregates that keep values may hold by the planner's estimate, before a query runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client.client import Client
from mcp_db_rig import as_reader, call, provisioned, running

from bos_mcp_db.backends.postgres.plan import kept_bytes
from bos_mcp_db.settings import DatabaseSettings
from bos_sqlguard import Kept

pytestmark = pytest.mark.security

# Every kind meets 9,000 others, each order its own customer: what is small beside it is honest.
SCHEMA = """
CREATE TABLE orders (
    order_id integer PRIMARY KEY, customer_id integer, kind text, note varchar(40)
);
CREATE TABLE customers (customer_id integer PRIMARY KEY, name varchar(40), kind text);
INSERT INTO orders SELECT i, i, 'k', 'note ' || i FROM generate_series(1, 9000) AS i;
INSERT INTO customers SELECT i, 'name ' || i, 'k' FROM generate_series(1, 9000) AS i;
ANALYZE;
"""
PAIRS = "orders AS a JOIN orders AS b ON"
HOSTILE = (
    f"SELECT length(string_agg(a.note, '')) FROM {PAIRS} a.kind = b.kind",
    f"SELECT cardinality(array(SELECT a.note FROM {PAIRS} a.kind = b.kind))",
    f"SELECT count(*) FROM {PAIRS} a.kind = b.kind HAVING length(string_agg(a.note, '')) > 1",
    f"SELECT a.order_id, string_agg(a.note, '') OVER () FROM {PAIRS} a.kind = b.kind",
    f"WITH x AS MATERIALIZED (SELECT a.note FROM {PAIRS} a.kind = b.kind)"
    " SELECT string_agg(note, '') FROM x",
    # Of what is computed the planner knows nothing, and expects a two-hundredth of the rows.
    f"SELECT length(string_agg(a.note, '')) FROM {PAIRS} a.order_id * 0 = b.order_id * 0",
    f"SELECT length(string_agg(a.note, '')) FROM {PAIRS} a.kind = b.kind"
    " WHERE a.order_id = a.customer_id AND b.order_id = b.customer_id",
    "WITH a(y, z) AS (SELECT order_id AS z, order_id * 0 FROM orders)"
    " SELECT array_agg(a.y) FROM a JOIN (SELECT order_id * 0 AS x FROM orders) AS b ON a.z = b.x",
    f"SELECT length(string_agg(a.note, '')) FROM {PAIRS} a.kind = b.kind"
    " WHERE a.note LIKE '%not%' AND b.note LIKE '%not%'",
    f"SELECT array_agg(a.note) FROM {PAIRS} a.order_id BETWEEN b.order_id - 9999 AND b.order_id",
    # Each is small enough alone.
    "SELECT "
    + " + ".join(f"length(string_agg(a.note, '{n}'))" for n in range(60))
    + " FROM orders AS a JOIN orders AS b ON a.kind = b.kind AND b.order_id < 40",
)
HONEST = (
    "SELECT string_agg(note, ',') FROM orders WHERE order_id < 9",
    "SELECT array_length(array_agg(DISTINCT kind), 1) FROM orders",
    "SELECT length(string_agg(name, ',')) FROM orders JOIN customers USING (customer_id)",
    "SELECT c.name, string_agg(o.note, ',') FROM customers AS c JOIN orders AS o"
    " ON o.customer_id = c.customer_id AND length(o.note) > 3 GROUP BY c.name ORDER BY 1 LIMIT 3",
    "WITH t AS (SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id)"
    " SELECT length(json_agg(json_build_object('c', c.name, 'n', t.n))::text) FROM customers AS c"
    " JOIN t ON t.customer_id = c.customer_id WHERE t.n > 0",
    # Much is counted, little is kept.
    f"WITH m AS (SELECT a.kind, count(*) AS n FROM {PAIRS} a.kind = b.kind AND b.order_id < 90"
    " GROUP BY a.kind) SELECT string_agg(kind || n, ',') FROM m",
    "SELECT array(SELECT note FROM orders ORDER BY order_id LIMIT 3)",
    "SELECT json_agg(t) FROM (SELECT o.note FROM orders AS o FULL JOIN customers AS c"
    " ON o.customer_id = c.customer_id WHERE lower(o.note) <> '' ORDER BY 1 LIMIT 3) AS t",
)


@asynccontextmanager
async def opened(dsn: str, **settings: Any) -> AsyncIterator[Client]:
    tables = ("orders", "customers")
    async with provisioned(dsn, SCHEMA, tables):
        database = DatabaseSettings(url=as_reader(dsn), allowed_tables=tables)
        async with running({"main": database}, **settings) as (client, _):
            yield client


async def test_what_the_planner_expects_to_fill_the_memory_is_refused(postgres_dsn: str) -> None:
    async with opened(postgres_dsn) as client:
        for query in HOSTILE:
            answer = await call(client, "mcp_db_query", query=query)
            broken = [each["rule"] for each in answer.get("violations", ())]
            assert broken == ["TOO_MUCH_KEPT"], (query, answer)
        assert "at most 256" in answer["error"]["message"]
        assert "group earlier" in answer["error"]["message"]
        for query in HONEST:
            answer = await call(client, "mcp_db_query", query=query)
            assert answer["success"], (query, answer)


async def test_zero_asks_for_no_estimate_of_memory(postgres_dsn: str) -> None:
    async with opened(postgres_dsn, max_kept_mib=0, timeout_s=0.1) as client:
        answer = await call(client, "mcp_db_query", query=HOSTILE[0])
    assert answer["error"]["reason"] == "QUERY_TIMED_OUT"


def test_bytes_of_a_plan() -> None:
    def node(rows: int, width: int, *plans: dict[str, Any], **more: Any) -> dict[str, Any]:
        outer = [{"Parent Relationship": "Outer", **plan} for plan in plans]
        return {"Plan Rows": rows, "Plan Width": width, "Plans": outer, **more}

    kept = Kept("", row_bytes=4, copies=2, lists=False)
    scan = node(1000, 10)
    row = 1000 * (16 + 4 + 2 * 10)
    assert kept_bytes(scan, kept) == 0
    assert kept_bytes(node(1, 8, scan, Output=["count(*)", "my_string_agg(a)"]), kept) == 0
    assert kept_bytes(node(1, 8, scan, Output=["length(string_agg(a, ''::text))"]), kept) == row
    assert kept_bytes(node(1, 8, scan, Filter="(array_agg(a) IS NULL)"), kept) == row
    both = node(1, 8, scan, Output=["string_agg(a, ''::text)", "jsonb_object_agg(a, b)"])
    assert kept_bytes(both, kept) == 3 * row
    assert kept_bytes(node(1, 8, both, both), kept) == 6 * row
    listed = Kept("", row_bytes=4, copies=2, lists=True)
    named = {**scan, "Subplan Name": "InitPlan 1", "Parent Relationship": "InitPlan"}
    assert kept_bytes({**node(1, 8), "Plans": [named]}, listed) == row
    assert kept_bytes({**node(1, 8), "Plans": [named]}, kept) == 0
    of_cte = {**named, "Subplan Name": "CTE x"}
    assert kept_bytes({**node(1, 8), "Plans": [of_cte]}, listed) == 0
