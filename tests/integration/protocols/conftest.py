"""One harness for each test, on a database of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bos_gateway.service import migrate_store
from bos_testkit.postgres import migrated_template

from .harness import open_harness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bos_testkit.postgres import PostgresServer

    from .harness import Harness


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    return migrated_template(postgres_server, "protocols_template", migrate_store)


@pytest.fixture
async def harness(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Harness]:
    async with open_harness(postgres_dsn, tmp_path) as opened:
        yield opened
