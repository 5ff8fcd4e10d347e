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
from bos_chassis.values import from_value
from bos_errors import InvalidArgument
from bos_sandbox.limits import run_limits
from bos_sandbox.outcomes import ended
from bos_sandbox.policy import choose, wants_second_run
from bos_sandbox.validate import ALLOWED_MODULES, PROCESS_MODULES, Refusal, read_program

if TYPE_CHECKING:
    import grpc

    from bos.sandbox.v1 import GetCapabilitiesRequest, RunProgramRequest
    from bos_sandbox.interpreter import Interpreter
    from bos_sandbox.limits import RunLimits
    from bos_sandbox.metrics import SandboxMetrics
    from bos_sandbox.process_tier.process import ProcessTier
    from bos_sandbox.settings import SandboxSettings
    from bos_sandbox.validate import Program


class SandboxServicer(SandboxServiceServicer):
    """Translates calls; deciding, checking and running happen behind it."""

    def __init__(
        self,
        interpreter: Interpreter,
        process_tier: ProcessTier,
        settings: SandboxSettings,
        metrics: SandboxMetrics,
    ) -> None:
        self._interpreter = interpreter
        self._process_tier = process_tier
        self._settings = settings
        self._metrics = metrics

    async def RunProgram(
        self,
        request: RunProgramRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> RunProgramResponse:
        """Check and run one program."""
        inputs = _inputs(request)
        started = time.monotonic()
        program = read_program(request.code, max_bytes=self._settings.max_code_bytes)
        if isinstance(program, Refusal):
            response = _refused(program, request.tier)
        else:
            limits = run_limits(request.limits, self._settings)
            response = await self._run(request, program, inputs, limits)
        self._metrics.observe(response, time.monotonic() - started)
        return response

    async def _run(
        self,
        request: RunProgramRequest,
        program: Program,
        inputs: dict[str, Any],
        limits: RunLimits,
    ) -> RunProgramResponse:
        asked = request.tier
        choice = choose(asked, program)
        if choice.tier == Tier.TIER_INTERPRETER:
            if choice.refusal is not None:
                return _refused(choice.refusal, choice.tier)
            response = await self._interpreter.run(program, inputs, limits)
            if not wants_second_run(asked, response) or await self._process_tier.unavailable():
                return response
            self._metrics.second_run()
            limits = limits.after(response.duration.ToNanoseconds() / 1e9)
        elif choice.refusal is not None and (reason := await self._process_tier.unavailable()):
            # The caller left the choice to us, so this is a failure that its author can mend.
            return _refused(
                choice.refusal, Tier.TIER_INTERPRETER, f"; the tier with more: {reason}"
            )
        return await self._process_tier.run(
            program.source, inputs, limits, program.modules, return_files=request.return_files
        )

    async def GetCapabilities(
        self,
        request: GetCapabilitiesRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> GetCapabilitiesResponse:
        """Say which tiers work here; waits until that is known."""
        reason = await self._process_tier.unavailable()
        interpreter = TierCapability(
            tier=Tier.TIER_INTERPRETER, available=True, modules=list(ALLOWED_MODULES)
        )
        process = TierCapability(tier=Tier.TIER_PROCESS, available=not reason, reason=reason)
        if not reason:
            process.modules.extend(sorted({*ALLOWED_MODULES, *PROCESS_MODULES}))
        return GetCapabilitiesResponse(tiers=[interpreter, process])


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


def _refused(refusal: Refusal, tier: Tier, more: str = "") -> RunProgramResponse:
    response = ended(refusal.status, refusal.kind, refusal.message + more)
    response.tier = Tier.TIER_PROCESS if tier == Tier.TIER_PROCESS else Tier.TIER_INTERPRETER
    return response
