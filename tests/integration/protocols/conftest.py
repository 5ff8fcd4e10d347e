"""One harness for the tests of a module, each of which has users of its own."""

import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bos_gateway.service import migrate_store
from bos_testkit.postgres import PostgresServer, copy_database, migrated_template

from .harness import Harness, open_harness


@pytest.fixture(scope="session")
def protocols_template(postgres_server: PostgresServer) -> str:
    return migrated_template(postgres_server, "protocols_template", migrate_store)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(
    postgres_server: PostgresServer,
    protocols_template: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Harness]:
    name = f"protocols_{secrets.token_hex(6)}"
    dsn = await copy_database(postgres_server, protocols_template, name)
    async with open_harness(dsn, tmp_path_factory.mktemp("protocols")) as harness:
        yield harness


@pytest_asyncio.fixture(loop_scope="module")
async def harness(opened: Harness) -> Harness:
    await opened.renew()
    return opened
