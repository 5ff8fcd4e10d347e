from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from bos_demo.company import load_postgres
from bos_postgres import create_database
from bos_testkit.postgres import PostgresServer

from .demo_checks import Company


@pytest.fixture(scope="module")
def data(
    tmp_path_factory: pytest.TempPathFactory,
    clean_environment: None,
    started_before: Callable[[Path], Path],
) -> Path:
    """Data folder of a standalone that has its databases already."""
    return started_before(tmp_path_factory.mktemp("data"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def company(postgres_server: PostgresServer) -> AsyncIterator[Company]:
    """A connection to a company of our own, for the reference queries."""
    name = f"reference_company_{secrets.token_hex(4)}"
    dsn = await create_database(postgres_server.dsn(), name)
    await load_postgres(dsn)
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "company"})
    yield connection
    await connection.close()
