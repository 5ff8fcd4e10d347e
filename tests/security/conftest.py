import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from bos_postgres import create_database
from bos_testkit.certificates import Authority
from bos_testkit.postgres import PostgresServer

from .deployments import Deployment, separate, standalone


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["separate", "standalone"])
async def deployment(
    request: pytest.FixtureRequest,
    clean_environment: None,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
    started_before: Callable[[Path], Path],
) -> AsyncIterator[Deployment]:
    """Bos in both forms in which people run it: one program, and processes that speak TLS."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "standalone":
        started_before(folder / ".data")
        async with standalone(folder) as started:
            yield started
        return
    dsn = await create_database(postgres_server.dsn(), f"security_{secrets.token_hex(6)}")
    async with separate(dsn, folder, Authority(folder / "authority")) as started:
        yield started
