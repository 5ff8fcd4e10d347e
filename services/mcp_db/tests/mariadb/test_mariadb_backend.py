"""With the guard off MariaDB itself still refuses, stops and distinguishes values."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from mariadb_server import PASSWORD, READER, TABLES, MariaDb, running_mariadb

from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.backends.mysql.backend import MySqlBackend
from bos_mcp_db.backends.mysql.session import parse_address
from bos_mcp_db.failures import (
    DatabaseUnavailable,
    QueryFailed,
    QueryRefused,
    QueryTimedOut,
    ResultTooLarge,
)
from bos_mcp_db.provisioning import provision_mysql
from bos_testkit.certificates import Authority

pytestmark = pytest.mark.security

LIMITS = Limits(max_rows=200, max_columns=50, max_bytes=1_000_000, timeout_s=10)
BRIEF = Limits(max_rows=200, max_columns=50, max_bytes=1_000_000, timeout_s=0.3)
LONG = Limits(max_rows=200, max_columns=50, max_bytes=1_000_000, timeout_s=300)


def backend_at(url: str, name: str) -> AbstractAsyncContextManager[MySqlBackend]:
    return aclosing(MySqlBackend(parse_address(url), default_schema=name))


@pytest.fixture
async def backend(mariadb: MariaDb, mariadb_shop: str) -> AsyncIterator[MySqlBackend]:
    async with backend_at(mariadb.url(mariadb_shop), mariadb_shop) as found:
        yield found


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO orders (order_id, customer_id) VALUES (9999, 1)",
        "REPLACE INTO orders (order_id, customer_id) VALUES (1, 1)",
        "CREATE TEMPORARY TABLE test.x (a INT)",
        "LOCK TABLES orders WRITE",
        "SET GLOBAL max_statement_time = 0",
        "SET TRANSACTION READ WRITE",
        "SELECT 1; COMMIT; DELETE FROM orders",
        "BEGIN NOT ATOMIC COMMIT; DELETE FROM orders; END",
        "EXECUTE IMMEDIATE 'DELETE FROM orders'",
        "SELECT * FROM orders INTO OUTFILE '/tmp/bos-copy'",
        "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE orders",
        "CALL evil()",
        "SELECT COUNT(*) FROM secrets",
        "SELECT * FROM mysql.user",
        "SELECT * FROM seq_1_to_10",
    ],
)
async def test_the_server_refuses_what_the_guard_would(
    statement: str, backend: MySqlBackend, mariadb: MariaDb, mariadb_shop: str
) -> None:
    before = await _state(mariadb, mariadb_shop)

    with pytest.raises(QueryFailed) as caught:
        await backend.query(statement, LIMITS)
    # Nothing of a statement lasts: each has a session of its own.
    assert (await backend.query("SELECT COUNT(*) FROM orders", LIMITS)).rows == [[500]]

    assert await _state(mariadb, mariadb_shop) == before
    assert READER not in caught.value.message
    assert "127.0.0.1" not in caught.value.message


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM orders",
        "CREATE TABLE x (a INT)",
        "GRANT ALL ON *.* TO another",
    ],
)
async def test_even_the_owner_may_only_read(
    statement: str, mariadb: MariaDb, mariadb_shop: str
) -> None:
    await mariadb.administer(
        f"CREATE OR REPLACE USER owner@'%' IDENTIFIED BY '{PASSWORD}';\n"
        "GRANT ALL ON *.* TO owner@'%' WITH GRANT OPTION"
    )
    before = await _state(mariadb, mariadb_shop)

    async with backend_at(mariadb.url(mariadb_shop, user="owner"), mariadb_shop) as backend:
        with pytest.raises(QueryFailed) as caught:
            await backend.query(statement, LIMITS)

    assert caught.value.sqlstate == "1792"
    assert await _state(mariadb, mariadb_shop) == before


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT SLEEP(60)",
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n"
        " JOIN orders a JOIN orders b JOIN orders c JOIN orders d",
        "SET STATEMENT max_statement_time = 0 FOR SELECT SLEEP(60)",
    ],
)
async def test_time_wasters_are_stopped(
    statement: str, backend: MySqlBackend, mariadb: MariaDb
) -> None:
    with pytest.raises(QueryTimedOut):
        await backend.query(statement, BRIEF)

    await _until_reading(mariadb, 0)


async def test_a_query_stops_with_its_caller(backend: MySqlBackend, mariadb: MariaDb) -> None:
    running = asyncio.create_task(backend.query("SELECT SLEEP(300)", LONG))
    await _until_reading(mariadb, 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await _until_reading(mariadb, 0)
    assert (await backend.query("SELECT COUNT(*) FROM orders", LIMITS)).rows == [[500]]


async def test_a_session_has_limits_of_time_and_memory(backend: MySqlBackend) -> None:
    found = await backend.query("SELECT @@max_statement_time, @@max_session_mem_used", LIMITS)

    assert found.rows == [[10.0, 256 * 1024 * 1024]]


async def test_recursion_ends_by_the_query_and_not_in_silence(backend: MySqlBackend) -> None:
    """By default MariaDB stops after 1,000 steps and answers with what it has."""
    found = await backend.query(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
        " SELECT COUNT(*) FROM n",
        LIMITS,
    )

    assert found.rows == [[3000]]


async def test_a_star_shows_its_width_before_its_rows(backend: MySqlBackend) -> None:
    narrow = Limits(max_rows=200, max_columns=3, max_bytes=1_000_000, timeout_s=10)

    with pytest.raises(QueryRefused):
        await backend.query("SELECT *, 1 FROM orders", narrow)


async def test_bytes_are_bounded(backend: MySqlBackend) -> None:
    small = Limits(max_rows=200, max_columns=50, max_bytes=2_000, timeout_s=10)

    cut = await backend.query("SELECT REPEAT('x', 500) FROM orders", small)
    assert 1 <= len(cut.rows) < 5
    assert cut.truncated
    with pytest.raises(ResultTooLarge):
        await backend.query("SELECT REPEAT('x', 5000)", small)


async def test_values_keep_their_types(backend: MySqlBackend) -> None:
    expected: dict[str, tuple[str, Any]] = {
        "TRUE": ("int64", 1),
        "9223372036854775807": ("int64", 9223372036854775807),
        "CAST(18446744073709551615 AS UNSIGNED)": ("int64", 18446744073709551615),
        "1.10": ("decimal", Decimal("1.10")),
        "1.5e0": ("double", 1.5),
        "'größe'": ("string", "größe"),
        "x'00ff'": ("bytes", b"\x00\xff"),
        "DATE '2025-01-31'": ("date", date(2025, 1, 31)),
        "TIMESTAMP '2025-01-31 10:00:00.5'": (
            "timestamp",
            datetime.fromisoformat("2025-01-31 10:00:00.5"),
        ),
        "TIME '10:00:00'": ("string", "10:00:00"),
        "TIME '-838:59:59.5'": ("string", "-838:59:59.500000"),
        "JSON_OBJECT('a', 1)": ("string", '{"a": 1}'),
        "NULL": ("string", None),
        "'%s %d'": ("string", "%s %d"),
    }

    found = await backend.query(f"SELECT {', '.join(expected)}", LIMITS)

    assert found.types == [kind for kind, _ in expected.values()]
    assert found.rows == [[value for _, value in expected.values()]]


async def test_bits_are_numbers_and_zero_dates_texts(
    backend: MySqlBackend, mariadb: MariaDb, mariadb_shop: str
) -> None:
    for statement in (
        f"CREATE TABLE {mariadb_shop}.odd (b BIT(8), d DATE, m DATETIME, t TIME)",
        f"INSERT INTO {mariadb_shop}.odd VALUES (b'10101010', '0000-00-00', 0, '34:00:00')",
        provision_mysql(READER, ["odd"], database=mariadb_shop),
    ):
        await mariadb.administer(statement)
    found = await backend.query("SELECT * FROM odd", LIMITS)
    assert found.rows == [[170, "0000-00-00", "0000-00-00 00:00:00", "34:00:00"]]


async def test_the_servers_defaults_do_not_matter(backend: MySqlBackend, mariadb: MariaDb) -> None:
    modes = "ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES"
    await mariadb.administer(
        f"SET GLOBAL sql_mode = '{modes}', GLOBAL init_connect = 'SET NAMES gbk'"
    )
    try:
        found = await backend.query(r"""SELECT "text", 'it\'s', 1 || 0, '¿\\'""", LIMITS)
    finally:
        await mariadb.administer("SET GLOBAL sql_mode = DEFAULT, GLOBAL init_connect = ''")

    assert found.rows == [["text", "it's", 1, "¿\\"]]


async def test_provisioning_can_be_repeated_and_narrowed(
    backend: MySqlBackend, mariadb: MariaDb, mariadb_shop: str
) -> None:
    await mariadb.administer(provision_mysql(READER, ["customers"], database=mariadb_shop))

    assert (await backend.query("SELECT COUNT(*) FROM customers", LIMITS)).rows == [[3]]
    with pytest.raises(QueryFailed, match="denied"):
        await backend.query("SELECT COUNT(*) FROM orders", LIMITS)


async def test_a_new_user_is_locked_at_first(mariadb: MariaDb, mariadb_shop: str) -> None:
    await mariadb.administer(provision_mysql("bos_new", TABLES, database=mariadb_shop))
    url = mariadb.url(mariadb_shop, user="bos_new")

    async with backend_at(url.replace(PASSWORD, "x"), mariadb_shop) as backend:
        with pytest.raises(DatabaseUnavailable):
            await backend.query("SELECT 1", LIMITS)


async def test_connections_are_encrypted_to_the_named_host_alone(tmp_path: Path) -> None:
    tls = Authority(tmp_path / "authority").issue("mariadb")
    other = Authority(tmp_path / "other")
    other.issue("mariadb")
    with running_mariadb(f"--ssl-cert={tls.cert_file}", f"--ssl-key={tls.key_file}") as server:
        name = await server.provisioned("CREATE TABLE t (a INT)", ["t"])
        trusted = f"ca_file={tls.ca_file}"
        async with backend_at(server.url(name, options=trusted), name) as backend:
            cipher = await backend.query("SHOW STATUS LIKE 'Ssl_cipher'", LIMITS)
        for options in (f"ca_file={tmp_path / 'other' / 'ca.pem'}", ""):
            async with backend_at(server.url(name, options=options), name) as backend:
                with pytest.raises(DatabaseUnavailable):
                    await backend.query("SELECT 1", LIMITS)

    assert cipher.rows[0][1]


async def test_a_server_without_encryption_is_refused(mariadb: MariaDb, mariadb_shop: str) -> None:
    async with backend_at(mariadb.url(mariadb_shop, options=""), mariadb_shop) as backend:
        with pytest.raises(DatabaseUnavailable):
            await backend.query("SELECT 1", LIMITS)


async def _state(mariadb: MariaDb, name: str) -> list[Any]:
    return [
        await mariadb.administer("SELECT COUNT(*), SUM(amount) FROM orders", name),
        await mariadb.administer(
            "SELECT table_schema, table_name FROM information_schema.tables"
            " WHERE table_schema NOT LIKE '%\\_schema' ORDER BY 1, 2"
        ),
        await mariadb.administer("SELECT user, host FROM mysql.global_priv ORDER BY 1, 2"),
    ]


async def _until_reading(mariadb: MariaDb, count: int) -> None:
    """Return when the reader runs that many queries."""
    active = (
        f"SELECT COUNT(*) FROM information_schema.processlist WHERE user = '{READER}'"
        " AND command = 'Query'"
    )
    async with asyncio.timeout(60):
        while (await mariadb.administer(active))[0][0] != count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
