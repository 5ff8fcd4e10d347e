from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import grpc
import pytest
import pytest_asyncio

from bos.sandbox.v1 import GetCapabilitiesRequest, SandboxServiceStub
from bos_chassis.server import GrpcServer
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_code.service import serve
from bos_code.settings import CodeSettings
from bos_sandbox.service import serve as serve_sandbox
from bos_sandbox.settings import SandboxSettings
from bos_testkit.fixtures.agent_harness import StartAgent


@asynccontextmanager
async def sandbox(telemetry: Telemetry | None = None, **changes: Any) -> AsyncIterator[GrpcServer]:
    """A small sandbox that has probed its process tier, which takes long on a busy machine."""
    server = ServerSettings(reflection=False, grace_s=1)
    small = {"server": server, "warm_workers": 1, "process_warm_workers": 0, "timeout_s": 30}
    settings = SandboxSettings.load(**small, **changes)
    async with (
        serve_sandbox(settings, telemetry or Telemetry.for_tests("sandbox")) as served,
        grpc.aio.insecure_channel(served.address) as channel,
    ):
        await SandboxServiceStub(channel).GetCapabilities(GetCapabilitiesRequest(), timeout=110)
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox_address() -> AsyncIterator[str]:
    """Address of a sandbox shared by all tests, because its start takes seconds."""
    async with sandbox() as server:
        yield server.address


@pytest_asyncio.fixture(loop_scope="module")
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def start(start_agent: StartAgent, sandbox_address: str) -> Any:
    step = {"tools": ["execute_code"], "context": {"current_date": "2026-06-15"}}
    settings = {"sandbox_target": sandbox_address, "program_timeout_s": 30, "step": step}
    return partial(start_agent, "code", serve, CodeSettings, **settings)
