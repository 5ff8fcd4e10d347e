from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest_asyncio

from bos_postgres import create_database

from .cell_harness import CellHarness, open_cell_harness
from .isolation_harness import IsolationHarness, open_isolation_harness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from bos_testkit.postgres import PostgresServer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def services(
    clean_environment: None,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[IsolationHarness]:
    """Services for users, and what ada has there."""
    dsn = await create_database(postgres_server.dsn(), f"isolation_{secrets.token_hex(6)}")
    async with open_isolation_harness(dsn, tmp_path_factory.mktemp("keys")) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    clean_environment: None,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[CellHarness]:
    dsn = await create_database(postgres_server.dsn(), f"cells_{secrets.token_hex(6)}")
    async with open_cell_harness(dsn, tmp_path_factory.mktemp("cells")) as opened:
        yield opened
