"""One harness for each test, on a database of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bos_gateway.service import migrate_store
from bos_testkit.postgres import PostgresServer, migrated_template

from .harness import Harness, open_harness


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    return migrated_template(postgres_server, "protocols_template", migrate_store)


@pytest.fixture
async def harness(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Harness]:
    async with open_harness(postgres_dsn, tmp_path) as opened:
        yield opened
