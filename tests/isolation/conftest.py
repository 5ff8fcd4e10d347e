from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest_asyncio
from isolation_harness import IsolationHarness, open_isolation_harness

from bos_postgres import create_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from bos_testkit.postgres import PostgresServer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    clean_environment: None,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[IsolationHarness]:
    """One harness for the tests of a module: none of them changes what ada has."""
    dsn = await create_database(postgres_server.dsn(), f"isolation_{secrets.token_hex(6)}")
    async with open_isolation_harness(dsn, tmp_path_factory.mktemp("keys")) as opened:
        yield opened
