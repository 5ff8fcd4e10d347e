from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any

import pytest

from bos_chassis.server import GrpcServer
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_computation.service import serve
from bos_computation.settings import ComputationSettings
from bos_sandbox.service import serve as serve_sandbox
from bos_sandbox.settings import SandboxSettings
from bos_testkit.fixtures.agent_harness import StartAgent


def sandbox(**changes: Any) -> AbstractAsyncContextManager[GrpcServer]:
    server = ServerSettings(reflection=False, grace_s=1)
    small = {"server": server, "kill_grace_s": 0.25, "warm_workers": 1, "max_workers": 2}
    settings = SandboxSettings.load(**small, process_enabled=False, **changes)
    return serve_sandbox(settings, Telemetry.for_tests("sandbox"))


@pytest.fixture
async def start(stack: AsyncExitStack, start_agent: StartAgent) -> Any:
    target = (await stack.enter_async_context(sandbox(timeout_s=2))).address
    return partial(start_agent, "computation", serve, ComputationSettings, sandbox_target=target)
