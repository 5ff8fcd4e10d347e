"""One tiny program through the sandbox service, beside a call that runs none."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import grpc

from bos.sandbox.v1 import (
    PROGRAM_STATUS_SUCCEEDED,
    GetCapabilitiesRequest,
    RunProgramRequest,
    SandboxServiceStub,
)
from bos_bench.measure import closed_loop, medians, warm_up
from bos_chassis.settings import ServerSettings
from bos_sandbox.service import serve
from bos_sandbox.settings import SandboxSettings

if TYPE_CHECKING:
    from bos.sandbox.v1 import SandboxServiceAsyncStub
    from bos_bench.measure import Effort, Figures, Part, Table
    from bos_chassis.telemetry import Telemetry

CONCURRENT = (1, 4)
_PROGRAM = "sum(n * n for n in range(100))"
_RESULT = 328350


async def measure(telemetry: Telemetry, effort: Effort) -> Part:
    """Time from nothing to the first result, and of further programs in the warm service."""
    settings = SandboxSettings.load(
        server=ServerSettings.load(host="127.0.0.1", port=0, drain_delay_s=0.0, grace_s=1.0)
    )
    began = time.perf_counter()
    async with (
        serve(settings, telemetry.named("sandbox")) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        started = time.perf_counter()
        stub = SandboxServiceStub(channel)
        await _run(stub)
        first = time.perf_counter()
        cold: Figures = {
            "start_ms": (started - began) * 1000,
            "first_program_ms": (first - started) * 1000,
        }
        await warm_up(effort.warm_up, lambda _: _run(stub))
        warm: Table = {
            f"{count} at once": medians(
                [await _compare(stub, count, effort.round_s) for _ in range(effort.rounds)]
            )
            for count in CONCURRENT
        }
    return {"cold": {"service and first program": cold}, "warm": warm}


async def _compare(stub: SandboxServiceAsyncStub, count: int, seconds: float) -> Figures:
    programs = await closed_loop(count, seconds, lambda _: _run(stub))
    calls = await closed_loop(count, seconds, lambda _: _nothing(stub))
    return {
        "programs_per_s": programs.per_s,
        "p50_ms": programs.percentile_ms(0.5),
        "p95_ms": programs.percentile_ms(0.95),
        "cpu_ms": programs.cpu_ms,
        "bare_call_p50_ms": calls.percentile_ms(0.5),
        "bare_call_cpu_ms": calls.cpu_ms,
        "over_bare_call_ratio": programs.percentile_ms(0.5) / calls.percentile_ms(0.5),
    }


async def _run(stub: SandboxServiceAsyncStub) -> None:
    response = await stub.RunProgram(RunProgramRequest(code=_PROGRAM), timeout=10)
    if response.status != PROGRAM_STATUS_SUCCEEDED or response.result.int64_value != _RESULT:
        raise RuntimeError(f"the program failed: {response.error_message}")


async def _nothing(stub: SandboxServiceAsyncStub) -> None:
    await stub.GetCapabilities(GetCapabilitiesRequest(), timeout=10)
