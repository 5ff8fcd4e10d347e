from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from bos_demo.company import DEFAULT_TODAY, load_postgres, write_sqlite
from bos_demo.generators.generate import generate
from bos_demo.rows import CompanyRows
from bos_postgres import create_database
from bos_testkit.postgres import PostgresServer


@pytest.fixture(scope="session")
def rows() -> CompanyRows:
    return generate(DEFAULT_TODAY)


@pytest.fixture(scope="session")
def company_dsn(postgres_server: PostgresServer) -> str:
    """A database with the company, read-only for tests."""

    async def load() -> str:
        dsn = await create_database(postgres_server.dsn(), "demo_company")
        await load_postgres(dsn)
        return dsn

    return asyncio.run(load())


@pytest.fixture
async def company(company_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(company_dsn, server_settings={"search_path": "company"})
    yield connection
    await connection.close()


@pytest.fixture(scope="session")
def sqlite_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "company.sqlite"
    write_sqlite(path)
    return path


@pytest.fixture
def sqlite_company(sqlite_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(sqlite_path)) as connection:
        yield connection
