"""Where the double of SQL Server falls short of SQL Server: a limit each, by name."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from mcp_db_rig import call, running, sql_server_database

from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.backends.mssql import MssqlBackend
from bos_mcp_db.backends.mssql_driver import parse_address, session_opener
from bos_mcp_db.failures import DatabaseUnavailable, QueryFailed

LIMITS = Limits(max_rows=200, max_columns=50, max_bytes=1_000_000, timeout_s=30)


@asynccontextmanager
async def unguarded(url: str) -> AsyncIterator[MssqlBackend]:
    """The adapter without the guard."""
    adapter = MssqlBackend(session_opener(parse_address(url)), default_schema="dbo", threads=2)
    try:
        yield adapter
    finally:
        await adapter.aclose()


async def test_the_double_checks_no_permissions(
    sql_server_url: str,
) -> None:
    """So what a reader may not see behind the guard is shown for the other backends alone."""
    async with unguarded(sql_server_url) as adapter:
        result = await adapter.query("SELECT employee FROM salaries", LIMITS)

    assert result.rows == [["Asha"]]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM orders",
        "UPDATE orders SET amount = 0",
        "DROP TABLE orders",
        "INSERT INTO salaries VALUES ('Ravi', 1)",
    ],
)
async def test_the_double_is_never_sent_a_write(
    statement: str, sql_server_url: str, sqlite_file: Path
) -> None:
    async with unguarded(sql_server_url) as adapter:
        with pytest.raises(QueryFailed, match="returns no rows"):
            await adapter.query(statement, LIMITS)

    with closing(sqlite3.connect(sqlite_file)) as connection:
        counted = "SELECT (SELECT sum(amount) FROM orders), (SELECT count(*) FROM salaries)"
        assert connection.execute(counted).fetchone() == (1_252_500, 1)


async def test_the_double_has_whole_numbers_and_texts_alone(sql_server_url: str) -> None:
    """The types of SQL Server are shown over a scripted session in test_mssql.py."""
    async with unguarded(sql_server_url) as adapter:
        assert (await adapter.query("SELECT 1, 'ä'", LIMITS)).rows == [[1, "ä"]]
        with pytest.raises(DatabaseUnavailable):
            await adapter.query("SELECT 0.5", LIMITS)


async def test_the_double_estimates_no_cost(
    sql_server_url: str,
) -> None:
    """Estimates are shown over a scripted session in test_mssql.py."""
    database = sql_server_database(sql_server_url)
    async with running({"main": database}, max_estimated_cost=10) as (client, _):
        envelope = await call(client, "mcp_db_query", query="SELECT name FROM customers")

    assert envelope["error"]["reason"] == "QUERY_FAILED"
    assert "did not tell" in envelope["error"]["message"]


async def test_the_double_runs_only_such_t_sql_as_translates_to_sqlite(sql_server_url: str) -> None:
    database = sql_server_database(sql_server_url)
    async with running({"main": database}) as (client, _):
        known = await call(client, "mcp_db_query", query="SELECT TOP 1 LEN(name) FROM customers")
        foreign = await call(client, "mcp_db_query", query="SELECT SOUNDEX(name) FROM customers")

    assert known["data"] == [[4]]
    assert foreign["error"]["reason"] in {"QUERY_FAILED", "QUERY_REFUSED"}
