from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from bos_chassis.telemetry import Telemetry
from bos_identity.service import migrate_store
from bos_standalone.rest import find_binary, serve_rest
from bos_testkit.postgres import PostgresServer, migrated_template

from .issuer_harness import Issuer, running_issuer
from .openid_harness import Builder, Harness


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    return migrated_template(postgres_server, "openid_template", migrate_store)


@pytest.fixture(scope="session")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    with running_issuer(tmp_path_factory.mktemp("issuer")) as running:
        yield running


@pytest.fixture
async def issuer(provider: Issuer) -> Issuer:
    await provider.forgets()
    return provider


@pytest.fixture
async def build(issuer: Issuer, postgres_dsn: str) -> AsyncIterator[Builder]:
    async with AsyncExitStack() as stack:
        yield Builder(stack, postgres_dsn, issuer)


@pytest.fixture
async def harness(build: Builder) -> Harness:
    return await build()


@pytest.fixture
async def rest(harness: Harness) -> AsyncIterator[str]:
    binary = find_binary(None)
    assert binary is not None, "build it first: make rest"
    async with serve_rest(
        binary,
        gateway_target="127.0.0.1:1",
        identity_target=harness.address,
        ports=(0,),
        grace_s=0.2,
        log=Telemetry.for_tests("rest").logger("bos.rest"),
    ) as running:
        yield running.url
