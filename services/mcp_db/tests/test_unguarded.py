"""With the guard off, the databases themselves still refuse."""

import asyncio
import sqlite3
from contextlib import AbstractAsyncContextManager, aclosing, closing
from pathlib import Path

import asyncpg
import pytest
from mcp_db_rig import READER, TABLES

from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.backends.postgres.backend import PostgresBackend
from bos_mcp_db.backends.sqlite import SqliteBackend
from bos_mcp_db.failures import QueryFailed, QueryRefused, QueryTimedOut
from bos_mcp_db.provisioning import provision_sql
from bos_sqlguard import load_functions

LIMITS = Limits(max_rows=200, max_columns=50, max_bytes=1_000_000, timeout_s=10)
BRIEF = Limits(max_rows=200, max_columns=50, max_bytes=1_000_000, timeout_s=0.3)


def sqlite_backend(path: Path) -> AbstractAsyncContextManager[SqliteBackend]:
    functions = load_functions("sqlite").scalar
    return aclosing(SqliteBackend(path, tables=TABLES, functions=functions, threads=2))


def postgres_backend(dsn: str) -> AbstractAsyncContextManager[PostgresBackend]:
    return aclosing(PostgresBackend(dsn, default_schema="public", pool_size=2))


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM orders RETURNING order_id",
        "CREATE TEMP TABLE x (a)",
        "PRAGMA query_only = OFF",
        "ATTACH DATABASE ':memory:' AS x",
        "SELECT count(*) FROM salaries",
        "SELECT employee FROM big_orders",
        "SELECT * FROM sqlite_master",
        "SELECT load_extension('/tmp/evil.so')",
        "SELECT zeroblob(1000000000)",
        "SELECT 1; DROP TABLE orders",
    ],
)
async def test_sqlite_refuses_what_the_guard_would(statement: str, sqlite_file: Path) -> None:
    before = _sqlite_state(sqlite_file)

    async with sqlite_backend(sqlite_file) as backend:
        with pytest.raises(QueryFailed):
            await backend.query(statement, LIMITS)

    assert _sqlite_state(sqlite_file) == before


async def test_sqlite_builds_no_huge_values(sqlite_file: Path) -> None:
    async with sqlite_backend(sqlite_file) as backend:
        for call in ("printf('%1000000000d', 1)", "format('%.*c', 1000000000, 'x')"):
            with pytest.raises(QueryFailed):
                await backend.query(f"SELECT {call}", LIMITS)
        small = await backend.query(
            "SELECT printf('%05d|%-4s|%%1000', 42, 'x'), format(NULL)", LIMITS
        )

    assert small.rows == [["00042|x   |%1000", None]]


_LONG = (
    "WITH RECURSIVE n (i, s) AS"
    " (SELECT 1, 'aaaaaaaa' UNION ALL SELECT i + 1, s || s FROM n WHERE i < 20)"
)


async def test_sqlite_searches_long_texts_quickly(sqlite_file: Path) -> None:
    """Its own functions take hours for these, and no clock interrupts them."""
    part = "substr(max(s), 1, 1000000) || 'b'"
    async with asyncio.timeout(120), sqlite_backend(sqlite_file) as backend:
        found = await backend.query(
            f"{_LONG} SELECT instr(max(s), {part}), length(replace(max(s), {part}, '')) FROM n",
            LIMITS,
        )
        with pytest.raises(QueryFailed):
            await backend.query(f"{_LONG} SELECT instr(max(s), x'00') FROM n", LIMITS)
        with pytest.raises(QueryFailed):
            await backend.query(f"{_LONG} SELECT replace(max(s), 'a', max(s)) FROM n", LIMITS)
        small = await backend.query(
            "SELECT instr('größe', 'ö'), instr(NULL, 'a'), instr(123, 2), instr('a', ''),"
            " replace('aXa', 'X', 'bb'), replace('a', '', 'b'), replace(121, 1, 3),"
            " replace(NULL, 1, 2)",
            LIMITS,
        )

    assert found.rows == [[0, 8 * 2**19]]
    assert small.rows == [[3, None, 2, 1, "abba", "a", "323", None]]


async def test_sqlite_still_reads_what_it_may(sqlite_file: Path) -> None:
    allowed = [
        "SELECT count(*) FROM orders",
        "WITH n AS (SELECT 1 AS a) SELECT count(*) FROM n",
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5) SELECT i FROM n",
        "SELECT name FROM customers WHERE name LIKE 'A%' OR name GLOB 'B*'",
        "SELECT '{\"a\": 1}' ->> '$.a', CURRENT_DATE, rank() OVER (ORDER BY amount) FROM orders",
    ]
    async with sqlite_backend(sqlite_file) as backend:
        results = [await backend.query(statement, LIMITS) for statement in allowed]

    assert all(result.rows for result in results)


@pytest.mark.parametrize(
    "statement",
    [
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
        "SELECT count(*) FROM orders a, orders b, orders c, orders d, orders e",
    ],
)
async def test_sqlite_stops_a_time_waster(statement: str, sqlite_file: Path) -> None:
    async with sqlite_backend(sqlite_file) as backend:
        with pytest.raises(QueryTimedOut):
            async with asyncio.timeout(60):
                await backend.query(statement, BRIEF)


async def test_sqlite_stops_when_the_caller_gives_up(sqlite_file: Path) -> None:
    endless = (
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    )
    async with sqlite_backend(sqlite_file) as backend:
        for _ in range(4):  # more than there are threads: each must come free again
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(backend.query(endless, LIMITS), 0.1)
        result = await backend.query("SELECT count(*) FROM orders", LIMITS)

    assert result.rows == [[500]]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM orders RETURNING order_id",
        "WITH x AS (DELETE FROM orders RETURNING order_id) SELECT * FROM x",
        "CREATE TEMP TABLE x (a int)",
        "SELECT * FROM orders FOR UPDATE",
        "SET TRANSACTION READ WRITE",
        "SELECT set_config('transaction_read_only', 'off', false)",
        "COMMIT; DELETE FROM orders",
        "COPY orders TO PROGRAM 'true'",
        "DO $$ BEGIN DELETE FROM orders; END $$",
        "SELECT lo_create(0)",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_terminate_backend(pg_backend_pid()) FROM pg_stat_activity WHERE usesuper",
        "LISTEN x",
    ],
)
async def test_postgres_refuses_what_the_guard_would(
    statement: str, reader_dsn: str, postgres_admin: asyncpg.Connection
) -> None:
    before = await _postgres_state(postgres_admin)

    async with postgres_backend(reader_dsn) as backend:
        with pytest.raises(QueryFailed):
            await backend.query(statement, LIMITS)
        # The statement may have changed its connection; the next one is read-only again.
        with pytest.raises(QueryFailed):
            await backend.query("DELETE FROM orders RETURNING 1", LIMITS)

    assert await _postgres_state(postgres_admin) == before


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM secrets",
        "SELECT * FROM pg_authid",
        "SELECT query_to_xml('SELECT * FROM secrets', true, true, '')",
    ],
)
async def test_postgres_refuses_other_tables(statement: str, reader_dsn: str) -> None:
    async with postgres_backend(reader_dsn) as backend:
        with pytest.raises(QueryFailed, match="permission denied") as caught:
            await backend.query(statement, LIMITS)

    assert caught.value.sqlstate == "42501"


async def test_postgres_transaction_is_read_only_even_for_the_owner(
    postgres_admin: asyncpg.Connection, postgres_dsn: str
) -> None:
    async with postgres_backend(postgres_dsn) as backend:
        for statement in (
            "DELETE FROM orders RETURNING 1",
            "WITH x AS (UPDATE orders SET amount = 0 RETURNING 1) SELECT * FROM x",
            "CREATE TABLE x (a int)",
        ):
            with pytest.raises(QueryFailed) as caught:
                await backend.query(statement, LIMITS)
            assert caught.value.sqlstate in {"25006", ""}

    assert await postgres_admin.fetchval("SELECT count(*) FROM orders WHERE amount > 0") == 500


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT pg_sleep(600)",
        "SELECT count(*) FROM generate_series(1, 1000000000)",
        "SELECT set_config('statement_timeout', '0', false), pg_sleep(600)",
    ],
)
async def test_postgres_stops_a_time_waster(statement: str, reader_dsn: str) -> None:
    async with postgres_backend(reader_dsn) as backend:
        with pytest.raises(QueryTimedOut):
            async with asyncio.timeout(60):
                await backend.query(statement, BRIEF)


async def test_postgres_stops_for_the_caller(
    reader_dsn: str, postgres_admin: asyncpg.Connection
) -> None:
    async with postgres_backend(reader_dsn) as backend:
        running = asyncio.create_task(backend.query("SELECT pg_sleep(600)", LIMITS))
        await _until_active(postgres_admin, 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await _until_active(postgres_admin, 0)
        result = await backend.query("SELECT count(*) FROM orders", LIMITS)

    assert result.rows == [[500]]


async def test_a_star_shows_its_width_before_it_runs(reader_dsn: str) -> None:
    narrow = Limits(max_rows=200, max_columns=3, max_bytes=1_000_000, timeout_s=10)

    async with postgres_backend(reader_dsn) as backend:
        with pytest.raises(QueryRefused):
            await backend.query("SELECT *, pg_sleep(600) FROM orders", narrow)


async def test_provisioning_can_be_repeated_and_narrowed(
    postgres_admin: asyncpg.Connection, reader_dsn: str
) -> None:
    await postgres_admin.execute(provision_sql(READER, ["customers"]))

    async with postgres_backend(reader_dsn) as backend:
        assert (await backend.query("SELECT count(*) FROM customers", LIMITS)).rows == [[3]]
        with pytest.raises(QueryFailed, match="permission denied"):
            await backend.query("SELECT count(*) FROM orders", LIMITS)


async def test_provisioning_refuses_an_administrator(postgres_admin: asyncpg.Connection) -> None:
    name = await postgres_admin.fetchval("SELECT current_user")

    with pytest.raises((asyncpg.RaiseError, ValueError)):
        await postgres_admin.execute(provision_sql(name, ["customers"]))
    if postgres_admin.is_in_transaction():
        await postgres_admin.execute("ROLLBACK")


@pytest.mark.parametrize(
    ("role", "tables"),
    [("", ["a"]), ('r"; DROP TABLE x', ["a"]), ("Role", ["a"]), ("r", []), ("r", [""])],
)
def test_provisioning_refuses_unusable_names(role: str, tables: list[str]) -> None:
    with pytest.raises(ValueError, match="must"):
        provision_sql(role, tables)


def test_provisioning_quotes_tables() -> None:
    assert '"s""x"."t""y"' in provision_sql("r", ['s"x.t"y'])


def _sqlite_state(path: Path) -> list[object]:
    with closing(sqlite3.connect(path)) as connection:
        return [
            connection.execute("SELECT count(*), sum(amount) FROM orders").fetchone(),
            connection.execute("SELECT name FROM sqlite_schema ORDER BY name").fetchall(),
        ]


async def _postgres_state(admin: asyncpg.Connection) -> list[object]:
    return [
        await admin.fetchrow("SELECT count(*), sum(amount) FROM orders"),
        await admin.fetchval(
            "SELECT array_agg(relname ORDER BY oid) FROM pg_class WHERE oid > 16383"
        ),
        await admin.fetchval("SELECT count(*) FROM pg_largeobject_metadata"),
    ]


async def _until_active(admin: asyncpg.Connection, count: int) -> None:
    """Return when the role runs ``count`` queries."""
    active = (
        f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{READER}' AND state = 'active'"
    )
    async with asyncio.timeout(60):
        while await admin.fetchval(active) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
