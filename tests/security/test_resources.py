"""Hostile agents of a user against what all share: memory of the database, connections, places.

They hold a valid run token and call mcp_db as an agent does. What the guard refuses is in
``libs/sqlguard/tests/security/test_growth.py``, what costs too much in mcp_db's own tests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from bos_chassis.auth.callers import RunTokenSigner, RunTokenVerifier, generate_keypair
from bos_chassis.telemetry import Telemetry
from bos_mcp_db.service import AUDIENCE, serve
from bos_mcp_db.settings import DatabaseSettings, McpDbSettings

pytestmark = [pytest.mark.security, pytest.mark.timeout(600)]

BACKEND_KIB = 300 * 1024
"""Memory limit of the server's process for any request, shared memory included."""

# As large as the guard lets them be.
LARGEST = (
    "SELECT " + " || ".join(["repeat('x', 10000)"] * 10) + " FROM orders",
    "SELECT length(repeat(repeat('x', 100), 1000)) FROM orders",
    "SELECT cardinality(array_agg(i)) FROM generate_series(1, 100000) AS g(i)",
    "SELECT length(string_agg(repeat('x', 80), '')) FROM generate_series(1, 100000) AS g(i)",
    "SELECT length(string_agg(repeat('x', 9000), '')) FROM generate_series(1, 1000) AS g(i)",
    "SELECT length(json_agg(g)::text) FROM generate_series(1, 100000) AS g(i)",
    "SELECT length(string_agg(lpad(note, 90), '')) FROM orders, generate_series(1, 50) AS g",
    "WITH RECURSIVE r(s, n) AS (SELECT 'x', 1 UNION ALL SELECT s || repeat('y', 200), n + 1 FROM r"
    " WHERE n < 1000) SELECT max(length(s)) FROM r",
    "SELECT count(DISTINCT a.i * b.i) FROM generate_series(1, 3000) AS a(i),"
    " generate_series(1, 300) AS b(i)",
    "SELECT length(regexp_replace(repeat('ab', 5000), 'a', '1234', 'g')) FROM orders",
)


@asynccontextmanager
async def hostile_agent(dsn: str, *, timeout_s: float = 30.0) -> AsyncIterator[Client]:
    """A client of mcp_db with the run token of a step; a query may take ``timeout_s``."""
    private, public = generate_keypair()
    token = RunTokenSigner(private).mint("eve", "run-1", "run-1/0/a", [AUDIENCE], ttl_s=250)
    settings = McpDbSettings.load(
        databases={"main": DatabaseSettings(url=dsn, allowed_tables=("orders",))},
        database_url=None,
        pool_size=2,
        timeout_s=timeout_s,
    )
    auth = RunTokenVerifier([public], AUDIENCE)
    async with (
        serve(settings, Telemetry.for_tests("mcp_db"), auth=auth) as server,
        httpx2.AsyncClient(headers={"bos-run-token": token}, timeout=timeout_s + 90) as http,
        Client(streamable_http_client(server.url, http_client=http)) as client,
    ):
        yield client


async def ask(client: Client, query: str) -> dict[str, Any]:
    reply = await client.call_tool("mcp_db_query", {"query": query})
    assert reply.structured_content is not None
    return reply.structured_content


@pytest.fixture
async def admin(postgres_dsn: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute(
        "CREATE TABLE orders (order_id integer, note text);"
        "INSERT INTO orders SELECT i, 'note ' || i FROM generate_series(1, 1000) AS i; ANALYZE"
    )
    yield connection
    await connection.close()


async def peak_kib(admin: asyncpg.Connection[Any]) -> int:
    """The most memory that a server process of mcp_db's has held so far."""
    rows = await admin.fetch(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'bos-mcp-db'"
    )
    assert rows
    return max(peak_of(row["pid"]) for row in rows)


def peak_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1])


async def test_no_query_of_an_agent_fills_the_memory_of_the_database(
    postgres_dsn: str, admin: asyncpg.Connection[Any]
) -> None:
    async with hostile_agent(postgres_dsn) as client:
        for statement in LARGEST:
            envelope = await ask(client, statement)
            # What is cut off at the size or the time of a result is no matter here.
            ends = {None, "RESULT_TOO_LARGE", "QUERY_TIMED_OUT"}
            assert (envelope["error"] or {}).get("reason") in ends, (statement, envelope["error"])
        assert await peak_kib(admin) < BACKEND_KIB
        assert (await ask(client, "SELECT count(*) FROM orders"))["data"] == [[1000]]


@pytest.mark.timeout(900)  # a million rows through a disk, however slow the machine is
async def test_a_sort_or_hash_goes_to_disk_in_time(
    postgres_dsn: str, admin: asyncpg.Connection[Any]
) -> None:
    await admin.execute("ALTER SYSTEM SET work_mem = '1GB'")
    await admin.execute("SELECT pg_reload_conf()")
    try:
        async with hostile_agent(postgres_dsn, timeout_s=600) as client:
            shown = await ask(
                client,
                "SELECT count(*) FROM (SELECT DISTINCT a.order_id, b.order_id, repeat('x', 450)"
                " FROM orders AS a, orders AS b) AS t",
            )
            assert shown["data"] == [[1_000_000]]
            assert await peak_kib(admin) < BACKEND_KIB
    finally:
        await admin.execute("ALTER SYSTEM RESET work_mem")
        await admin.execute("SELECT pg_reload_conf()")
