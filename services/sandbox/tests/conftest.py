from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bos.sandbox.v1 import Limits, RunProgramRequest, RunProgramResponse, SandboxServiceStub, Tier
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value, to_value
from bos_sandbox.service import serve
from bos_sandbox.settings import SandboxSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


@dataclass
class Sandbox:
    """A real sandbox service and a client of it."""

    stub: Any
    telemetry: Telemetry

    async def run(
        self,
        code: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        limits: Limits | None = None,
        tier: Tier = Tier.TIER_UNSPECIFIED,
    ) -> RunProgramResponse:
        values = {name: to_value(value) for name, value in (inputs or {}).items()}
        request = RunProgramRequest(code=code, inputs=values, limits=limits, tier=tier)
        return await self.stub.RunProgram(request, timeout=30)

    async def result(self, code: str, inputs: Mapping[str, Any] | None = None) -> Any:
        response = await self.run(code, inputs)
        assert not response.error_type, (code, response.error_type, response.error_message)
        return from_value(response.result)


@pytest.fixture
def settings() -> SandboxSettings:
    """Short limits, so that programs which exceed them end soon."""
    return SandboxSettings.load(
        server=ServerSettings(reflection=False, grace_s=1),
        timeout_s=1,
        kill_grace_s=0.25,
        queue_timeout_s=2,
        memory_bytes=32 * 1024 * 1024,
        warm_workers=1,
        max_workers=2,
    )


@pytest.fixture
async def sandbox(settings: SandboxSettings) -> AsyncIterator[Sandbox]:
    telemetry = Telemetry.for_tests("sandbox")
    async with (
        serve(settings, telemetry) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        yield Sandbox(SandboxServiceStub(channel), telemetry)
