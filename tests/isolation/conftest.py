from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bos_postgres import create_database
from bos_testkit.postgres import PostgresServer

from .cell_harness import CellHarness, open_cell_harness


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    clean_environment: None,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[CellHarness]:
    dsn = await create_database(postgres_server.dsn(), f"cells_{secrets.token_hex(6)}")
    async with open_cell_harness(dsn, tmp_path_factory.mktemp("cells")) as opened:
        yield opened
