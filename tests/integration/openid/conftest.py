from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bos_chassis.telemetry import Telemetry
from bos_standalone.rest import find_binary, serve_rest

from .issuer_harness import Issuer, running_issuer
from .openid_harness import Builder, Harness


@pytest.fixture
async def issuer(tmp_path: Path) -> AsyncIterator[Issuer]:
    folder = tmp_path / "issuer"
    folder.mkdir()
    async with running_issuer(folder) as running:
        yield running


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
