"""One tiny program through both tiers of the sandbox service, beside a call that runs none."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from bos.sandbox.v1 import (
    PROGRAM_STATUS_SUCCEEDED,
    TIER_INTERPRETER,
    TIER_PROCESS,
    GetCapabilitiesRequest,
    RunProgramRequest,
    SandboxServiceStub,
    Tier,
)
from bos_bench.measure import Effort, Figures, Part, Table, closed_loop, compared, medians, warm_up
from bos_chassis.settings import ServerSettings, TelemetrySettings
from bos_chassis.telemetry import Telemetry, setup_telemetry
from bos_sandbox.service import serve
from bos_sandbox.settings import SandboxSettings

CONCURRENT = (1, 4)
_PROGRAM = "sum(n * n for n in range(100))"
_RESULT = 328350
_STARTS = "bos_sandbox_process_start_seconds"
_NAMES = {TIER_INTERPRETER: "interpreter", TIER_PROCESS: "process"}
_REFILL_TIMEOUT_S = 12.0
_REFILL_S = 1.0


async def measure(effort: Effort) -> Part:
    """Time from nothing to the first result, and of further programs, tier by tier.

    In the process tier every program has an interpreter of its own. *Warm* took one that waited
    (numpy and pandas imported), *cold* started one, without them.
    """
    cold: Table = {}
    began = time.perf_counter()
    # Without the process tier, which would start an interpreter beside what is measured.
    async with _serving(process_enabled=False) as harness:
        started = time.perf_counter()
        await harness.run(TIER_INTERPRETER)
        first = time.perf_counter()
        cold["service and first program"] = {
            "start_ms": (started - began) * 1000,
            "first_program_ms": (first - started) * 1000,
        }
        await warm_up(effort.warm_up, lambda _: harness.run(TIER_INTERPRETER))
        warm = await compared(
            effort, CONCURRENT, lambda count: _compare(harness, count, effort.round_s)
        )
    tables: Part = {"cold": cold, "warm": warm, "process": {}}
    if (reason := await _missing()) is not None:
        print(f"sandbox: the process tier is not measured, it is off here: {reason}")
        return tables
    async with _serving(process_warm_workers=0) as harness:
        await warm_up(1, lambda _: harness.run(TIER_PROCESS))
        one = [await _process_cold(harness, 2 * effort.round_s) for _ in range(effort.rounds)]
    async with _serving(process_warm_workers=1) as harness:
        two = [await _process_warm(harness, effort) for _ in range(effort.rounds)]
    tables["process"] = {"cold, 1 at once": medians(one), "warm, 1 at once": medians(two)}
    return tables


@dataclass
class _Harness:
    """A running sandbox and a client of it."""

    stub: Any
    telemetry: Telemetry

    async def run(self, tier: Tier) -> None:
        request = RunProgramRequest(code=_PROGRAM, tier=tier)
        response = await self.stub.RunProgram(request, timeout=30)
        if response.status != PROGRAM_STATUS_SUCCEEDED or response.result.int64_value != _RESULT:
            raise RuntimeError(f"the program failed ({_NAMES[tier]}): {response.error_message}")

    async def nothing(self) -> None:
        await self.stub.GetCapabilities(GetCapabilitiesRequest(), timeout=30)

    def sample(self, suffix: str, *, warm: bool) -> float:
        """A figure of the interpreters that were started (cold) or had waited (warm)."""
        labels = {"warm": str(warm).lower()}
        value = self.telemetry.registry.get_sample_value(f"{_STARTS}_{suffix}", labels)
        return value or 0.0


@asynccontextmanager
async def _serving(**settings: Any) -> AsyncIterator[_Harness]:
    chosen = SandboxSettings.load(
        server=ServerSettings.load(host="127.0.0.1", port=0, drain_delay_s=0.0, grace_s=1.0),
        **settings,
    )
    # Calls that wait for the process tier are slow, and a tier that is off is meant to be.
    quiet = TelemetrySettings.load(log_level="error", otlp_endpoint=None)
    with setup_telemetry("bench-sandbox", quiet) as telemetry:
        async with (
            serve(chosen, telemetry) as server,
            grpc.aio.insecure_channel(server.address) as channel,
        ):
            yield _Harness(SandboxServiceStub(channel), telemetry)


async def _missing() -> str | None:
    """Why there is no process tier here, or None."""
    async with _serving(process_warm_workers=0) as harness:
        found = await harness.stub.GetCapabilities(GetCapabilitiesRequest(), timeout=30)
    (process,) = (one for one in found.tiers if one.tier == TIER_PROCESS)
    return None if process.available else process.reason


async def _compare(harness: _Harness, count: int, seconds: float) -> Figures:
    programs = await closed_loop(count, seconds, lambda _: harness.run(TIER_INTERPRETER))
    calls = await closed_loop(count, seconds, lambda _: harness.nothing())
    return {
        "programs_per_s": programs.per_s,
        "p50_ms": programs.percentile_ms(0.5),
        "p95_ms": programs.percentile_ms(0.95),
        "cpu_ms": programs.cpu_ms,
        "bare_call_p50_ms": calls.percentile_ms(0.5),
        "bare_call_cpu_ms": calls.cpu_ms,
        "over_bare_call_ratio": programs.percentile_ms(0.5) / calls.percentile_ms(0.5),
        "added_p50_ms": programs.percentile_ms(0.5) - calls.percentile_ms(0.5),
    }


async def _process_cold(harness: _Harness, seconds: float) -> Figures:
    total, count = harness.sample("sum", warm=False), harness.sample("count", warm=False)
    programs = await closed_loop(1, seconds, lambda _: harness.run(TIER_PROCESS))
    calls = await closed_loop(1, seconds / 4, lambda _: harness.nothing())
    started = harness.sample("count", warm=False) - count
    return {
        "p50_ms": programs.percentile_ms(0.5),
        "p95_ms": programs.percentile_ms(0.95),
        "mean_start_ms": (harness.sample("sum", warm=False) - total) / started * 1000,
        "bare_call_p50_ms": calls.percentile_ms(0.5),
    }


async def _process_warm(harness: _Harness, effort: Effort) -> Figures:
    """Programs that each found an interpreter waiting; the time to make another is not counted."""
    latencies: list[float] = []
    wanted = 3 if effort.rounds > 1 else 1
    give_up = time.perf_counter() + _REFILL_TIMEOUT_S
    while len(latencies) < wanted:
        if time.perf_counter() > give_up:
            if latencies:
                break
            raise RuntimeError("no isolated interpreter was kept waiting")
        before = harness.sample("count", warm=True)
        began = time.perf_counter()
        await harness.run(TIER_PROCESS)
        took = time.perf_counter() - began
        if harness.sample("count", warm=True) > before:
            latencies.append(took)
        # Making the next one takes the processor for most of a second; meanwhile nothing is timed.
        await asyncio.sleep(_REFILL_S)
    calls = await closed_loop(1, effort.round_s / 4, lambda _: harness.nothing())
    latencies.sort()
    return {
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p95_ms": latencies[-1] * 1000,
        "bare_call_p50_ms": calls.percentile_ms(0.5),
    }
