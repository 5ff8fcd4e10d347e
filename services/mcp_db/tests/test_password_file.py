"""Passwords of databases that stand in a file and change while the service runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from bos_errors import ConfigurationError
from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.backends.mssql_driver import parse_address
from bos_mcp_db.backends.password_file import password_source
from bos_mcp_db.databases import Databases, open_databases
from bos_mcp_db.failures import DatabaseUnavailable
from bos_mcp_db.settings import DatabaseSettings, McpDbSettings

pytestmark = pytest.mark.security

ROLE, OLD, NEW = "rotating_reader", "the-old-password", "the-new-password"
LIMITS = Limits(max_rows=10, max_columns=10, max_bytes=10_000, timeout_s=20)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(f"{OLD}\n")
    return path


def write(path: Path, text: str) -> None:
    path.write_text(text)


@asynccontextmanager
async def databases(url: str) -> AsyncIterator[Databases]:
    one = DatabaseSettings(url=url, allowed_tables=("customers",))
    settings = McpDbSettings.load(databases={"main": one}, database_url=None)
    async with open_databases(settings) as opened:
        yield opened


async def test_new_connections_use_the_new_password(postgres_dsn: str, file: Path) -> None:
    administrator = await asyncpg.connect(postgres_dsn)
    try:
        await administrator.execute(
            "CREATE TABLE customers AS SELECT 1 AS id;"
            f"CREATE ROLE {ROLE} LOGIN PASSWORD '{OLD}'; GRANT SELECT ON customers TO {ROLE}"
        )
        scheme, _, rest = postgres_dsn.partition("://")
        place = rest.rpartition("@")[2]
        url = f"{scheme}://{ROLE}@{place}{'&' if '?' in place else '?'}password_file={file}"
        ask = "SELECT count(*) FROM customers"
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1"
        async with databases(url) as opened:
            database = opened.get("main", frozenset())
            assert (await database.query(ask, LIMITS)).rows
            await administrator.execute(f"ALTER ROLE {ROLE} PASSWORD '{NEW}'")
            async with asyncio.timeout(60):
                while await administrator.fetch(end, ROLE):  # noqa: ASYNC110  Not gone yet.
                    await asyncio.sleep(0.01)
            for _ in range(2):
                with pytest.raises(DatabaseUnavailable):
                    await database.query(ask, LIMITS)
            write(file, NEW)
            assert (await database.query(ask, LIMITS)).rows
        await administrator.fetch(end, ROLE)
    finally:
        await administrator.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")
        await administrator.close()


def test_sql_server_asks_for_the_password_with_each_connection(file: Path) -> None:
    given = f"mssql://ada@host:1433/shop?encrypt=no&password_file={file}"
    url, password = password_source(given, "main")
    address = parse_address(url, password)
    assert (address.user, address.password()) == ("ada", OLD)
    file.write_text(NEW)
    assert address.password() == NEW
    assert NEW not in repr(address)


def test_urls_keep_their_other_options(file: Path) -> None:
    for given, kept in (
        ("postgresql:///db?host=/run/pg&password_file={}", "postgresql:///db?host=%2Frun%2Fpg"),
        ("postgresql://ada@h/db?password_file={}", "postgresql://ada@h/db"),
        ("postgresql://ada:secret@h/db?sslmode=require", None),
    ):
        url, password = password_source(given.format(file), "main")
        assert url == (kept or given)
        assert (password is None) is (kept is None)


async def test_what_is_wrong_with_it_is_named_at_the_start(file: Path) -> None:
    for url, problem in (
        (f"postgresql://ada:secret@h/db?password_file={file}", "no password in the URL"),
        (f"postgresql://ada@h/db?password_file={file}.missing", "cannot be read"),
    ):
        with pytest.raises(ConfigurationError, match=problem) as refused:
            async with databases(url):
                pass
        assert "secret" not in refused.value.message
