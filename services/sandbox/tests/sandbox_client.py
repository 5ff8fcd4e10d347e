"""A client of a real sandbox service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bos.sandbox.v1 import Limits, RunProgramRequest, RunProgramResponse, Tier
from bos_chassis.values import from_value, to_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos_chassis.telemetry import Telemetry


@dataclass
class Sandbox:
    """A real sandbox service and a client of it."""

    stub: Any
    telemetry: Telemetry
    tier: Tier = Tier.TIER_UNSPECIFIED

    async def run(
        self,
        code: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        limits: Limits | None = None,
        tier: Tier | None = None,
    ) -> RunProgramResponse:
        values = {name: to_value(value) for name, value in (inputs or {}).items()}
        request = RunProgramRequest(
            code=code, inputs=values, limits=limits, tier=self.tier if tier is None else tier
        )
        return await self.stub.RunProgram(request, timeout=60)

    async def result(self, code: str, inputs: Mapping[str, Any] | None = None) -> Any:
        response = await self.run(code, inputs)
        assert not response.error_type, (code, response.error_type, response.error_message)
        return from_value(response.result)
