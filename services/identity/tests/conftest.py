from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from identity_harness import Caller, Starter
from scripted_provider import ScriptedProvider, scripted_provider

from bos_identity.service import migrate_store
from bos_testkit.postgres import PostgresServer, migrated_template


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The tables of identity, which it finds up to date."""
    return migrated_template(postgres_server, "identity_template", migrate_store)


@pytest.fixture
async def start(postgres_dsn: str) -> AsyncIterator[Starter]:
    async with AsyncExitStack() as stack:
        yield Starter(stack, postgres_dsn)


@pytest.fixture
async def identity(start: Starter) -> Caller:
    return await start()


@pytest.fixture
async def provider() -> AsyncIterator[ScriptedProvider]:
    async with scripted_provider() as running:
        yield running
