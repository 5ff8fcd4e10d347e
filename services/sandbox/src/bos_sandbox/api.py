from __future__ import annotations

import keyword
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bos.sandbox.v1 import (
    GetCapabilitiesResponse,
    RunProgramResponse,
    SandboxServiceServicer,
    Tier,
    TierCapability,
)
from bos_chassis.errors import FailedPrecondition, InvalidArgument
from bos_chassis.values import from_value
from bos_sandbox.interpreter import RunLimits
from bos_sandbox.validate import ALLOWED_MODULES, Refusal, check_program

if TYPE_CHECKING:
    import grpc

    from bos.sandbox.v1 import GetCapabilitiesRequest, Limits, RunProgramRequest
    from bos_sandbox.interpreter import Interpreter
    from bos_sandbox.metrics import SandboxMetrics
    from bos_sandbox.settings import SandboxSettings

PROCESS_TIER_REASON = (
    "The process tier is not part of this version; programs run in the interpreter tier."
)


class SandboxApi(SandboxServiceServicer):
    """Translates calls; checking and running happen behind it."""

    def __init__(
        self, interpreter: Interpreter, settings: SandboxSettings, metrics: SandboxMetrics
    ) -> None:
        self._interpreter = interpreter
        self._settings = settings
        self._metrics = metrics

    async def RunProgram(
        self,
        request: RunProgramRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> RunProgramResponse:
        """Check and run one program (SPEC F-02..F-05)."""
        if request.tier == Tier.TIER_PROCESS:
            # Fails closed: a caller that asked for the stronger wall must not get another one.
            raise FailedPrecondition(PROCESS_TIER_REASON, reason="TIER_UNAVAILABLE")
        inputs = _inputs(request)
        started = time.monotonic()
        checked = check_program(request.code, max_bytes=self._settings.max_code_bytes)
        if isinstance(checked, Refusal):
            response = _refused(checked)
        else:
            limits = _limits(request.limits, self._settings)
            response = await self._interpreter.run(checked, inputs, limits)
        self._metrics.observe(response, time.monotonic() - started)
        return response

    async def GetCapabilities(
        self,
        request: GetCapabilitiesRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> GetCapabilitiesResponse:
        """Say which tiers work here."""
        return GetCapabilitiesResponse(
            tiers=[
                TierCapability(
                    tier=Tier.TIER_INTERPRETER, available=True, modules=list(ALLOWED_MODULES)
                ),
                TierCapability(tier=Tier.TIER_PROCESS, reason=PROCESS_TIER_REASON),
            ]
        )


def _inputs(request: RunProgramRequest) -> dict[str, Any]:
    inputs = {}
    for name, value in request.inputs.items():
        if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
            raise InvalidArgument.field(
                f'inputs["{name[:60]}"]',
                "must be a Python variable name that is no keyword and starts with a letter",
            )
        try:
            inputs[name] = _exact(from_value(value))
        except (ValueError, ArithmeticError):
            raise InvalidArgument.field(
                f'inputs["{name[:60]}"]', "holds a decimal, date or time that does not exist"
            ) from None
    return inputs


def _exact(value: Any) -> Any:
    """``value`` with whole numbers beyond 64 bits as ``int`` again.

    They travel as decimals, whose arithmetic rounds to 28 digits.
    """
    match value:
        case Decimal() if value.is_finite() and value.as_tuple().exponent == 0:
            return value if abs(value) < 2**63 else int(value)
        case list():
            return [_exact(item) for item in value]
        case dict():
            return {name: _exact(item) for name, item in value.items()}
    return value


def _limits(asked: Limits, settings: SandboxSettings) -> RunLimits:
    seconds = asked.timeout.ToNanoseconds() / 1e9
    return RunLimits(
        timeout_s=min(seconds, settings.timeout_s) if seconds > 0 else settings.timeout_s,
        memory_bytes=min(asked.memory_bytes or settings.memory_bytes, settings.memory_bytes),
        output_bytes=min(asked.output_bytes or settings.output_bytes, settings.output_bytes),
    )


def _refused(refusal: Refusal) -> RunProgramResponse:
    response = RunProgramResponse(
        status=refusal.status,
        error_type=refusal.kind,
        error_message=refusal.message,
        exit_code=1,
        tier=Tier.TIER_INTERPRETER,
    )
    response.duration.FromNanoseconds(0)
    return response
