from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from memory_harness import Caller, Starter

from bos_memory.service import migrate_store
from bos_testkit.postgres import PostgresServer, migrated_template
from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """Migrated tables of memory."""
    return migrated_template(postgres_server, "memory_template", migrate_store)


@pytest.fixture
async def start(postgres_dsn: str, scripted_model: ScriptedModelFactory) -> AsyncIterator[Starter]:
    async with AsyncExitStack() as stack:
        yield Starter(stack, postgres_dsn, scripted_model)


@pytest.fixture
async def memory(start: Starter) -> Caller:
    """Memory without a model."""
    return await start(model=False)
