from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest_asyncio
from flood_targets import Target, separate_processes, standalone

from bos_postgres import create_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from bos_testkit.postgres import PostgresServer


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["separate", "standalone"])
async def targets(
    request: pytest.FixtureRequest,
    clean_environment: None,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[list[Target]]:
    """Services to be flooded, in both forms in which people run them."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "standalone":
        async with standalone(folder) as started:
            yield started
        return
    dsn = await create_database(postgres_server.dsn(), f"floods_{secrets.token_hex(6)}")
    async with separate_processes(dsn, folder) as started:
        yield started
        for target in started:
            log = (folder / f"{target.name}.log").read_text()
            assert "Traceback" not in log, log[-4000:]
            assert len(log) < 1_000_000, "strangers fill the disk"
