from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import pytest
from mcp.client.client import Client

from bos_chassis.telemetry import Telemetry
from bos_mcp_db.service import serve
from bos_mcp_db.settings import DatabaseSettings, McpDbSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytest_plugins = ["bos_testkit.postgres"]

TABLES = ("customers", "orders", "measures")

_SCHEMA = """
CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT UNIQUE);
CREATE TABLE orders (
    order_id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customers (customer_id),
    amount NUMERIC,
    placed_on TEXT
);
CREATE TABLE salaries (employee TEXT, amount NUMERIC);
CREATE TABLE measures (label TEXT, whole INTEGER, part REAL, raw BLOB, absent TEXT);
CREATE VIEW big_orders AS SELECT o.order_id, s.employee FROM orders AS o, salaries AS s;
INSERT INTO customers VALUES (1, 'Asha', 'Pune'), (2, 'Ravi', 'Delhi'), (3, 'Mira', 'Agra');
INSERT INTO orders
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
SELECT i, 1 + i % 3, i * 10, '2025-01-01' FROM n;
INSERT INTO salaries VALUES ('Asha', 100);
INSERT INTO measures VALUES ('größe', 9007199254740993, 2.0, x'00ff', NULL);
"""


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Path:
    path = tmp_path / "company.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(_SCHEMA)
    return path


@asynccontextmanager
async def running(
    databases: dict[str, DatabaseSettings], **settings: Any
) -> AsyncIterator[tuple[Client, Telemetry]]:
    """A service with these databases, and a real client connected to it over HTTP."""
    telemetry = Telemetry.for_tests("mcp_db")
    chosen = McpDbSettings.load(databases=databases, database_url=None, **settings)
    async with serve(chosen, telemetry) as server, Client(server.url) as client:
        yield client, telemetry


def sqlite_database(path: Path, **changes: Any) -> DatabaseSettings:
    return DatabaseSettings(
        **{"url": f"sqlite:///{path}", "allowed_tables": TABLES, "sample_values": 3, **changes}
    )


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The envelope of one tool call."""
    reply = await client.call_tool(tool, arguments)
    assert reply.structured_content is not None, reply.content
    assert reply.is_error == (not reply.structured_content["success"])
    return reply.structured_content
