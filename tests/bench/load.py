"""``make bench NAME=load``: throughput and memory of a gateway replica with awkward clients.

::

    python tests/bench/load.py [--seconds 10] [--replicas 1 2] [--at-once 4 16 64] [--json FILE]

A closed loop of callers, each of which asks again when its run has ended. Of ten runs two are
cancelled and three are left in the middle of the stream and followed again behind the last event.
Each gateway is a process of its own on one durable PostgreSQL; planner, composer and agents answer
at once and share this process, so the gateway is what is measured as long as it is the slowest.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc

from bos.gateway.v1 import (
    RUN_STATUS_CANCELLED,
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    AskStreamRequest,
    CancelRunRequest,
    OrchestratorServiceStub,
    WatchRunRequest,
)
from bos_bench.doubles import five_agents, open_harness
from bos_bench.processes import Child
from bos_bench.store import Store, durable_store
from bos_chassis.settings import TelemetrySettings
from bos_chassis.telemetry import setup_telemetry

_TIMEOUT_S = 60.0
_SAMPLES = 8
_WARM_UP_S = 1.0
_CANCELS, _RECONNECTS = (3, 7), (1, 5, 9)
"""Of ten runs of a caller, those whose clients do so."""


class Caller:
    """Asks one question after the other, at any of the gateways."""

    def __init__(self, stubs: list[Any], number: int) -> None:
        self._stubs = stubs
        self._turn = number
        self.latencies_s: list[float] = []
        self.cancelled = self.reconnected = 0

    async def run(self) -> None:
        """One run to its end.

        Raises:
            RuntimeError: it ended as it should not, or events were missed.
        """
        self._turn += 1
        stub = self._stubs[self._turn % len(self._stubs)]
        other = self._stubs[(self._turn + 1) % len(self._stubs)]
        kind, began = self._turn % 10, time.perf_counter()
        question = AgentRequest(question=f"Question {self._turn}?")
        call = stub.AskStream(AskStreamRequest(request=question), timeout=_TIMEOUT_S)
        run_id, last = "", 0
        try:
            async for message in call:
                event = message.event
                run_id, last = event.run_id, max(last, event.sequence)
                if event.HasField("step_started") and kind in _CANCELS:
                    cancel = CancelRunRequest(run_id=run_id, reason="load")
                    await other.CancelRun(cancel, timeout=_TIMEOUT_S)
                if event.HasField("step_started") and kind in _RECONNECTS:
                    break
                if event.HasField("run_finished"):
                    self._ended(event.run_finished.response.status, kind, began)
                    return
        finally:
            call.cancel()
        self.reconnected += 1
        await self._follow(other, run_id, last, kind, began)

    async def _follow(self, stub: Any, run_id: str, last: int, kind: int, began: float) -> None:
        """Elsewhere, behind the last event that was seen."""
        request = WatchRunRequest(run_id=run_id, after_sequence=last)
        call = stub.WatchRun(request, timeout=_TIMEOUT_S)
        try:
            async for message in call:
                event = message.event
                if event.sequence and event.sequence <= last:
                    raise RuntimeError(f"event {event.sequence} came twice")
                if event.HasField("run_finished"):
                    self._ended(event.run_finished.response.status, kind, began)
                    return
        finally:
            call.cancel()
        raise RuntimeError(f"run {run_id} has no end")

    def _ended(self, status: int, kind: int, began: float) -> None:
        if status == RUN_STATUS_CANCELLED and kind in _CANCELS:
            self.cancelled += 1
        elif status != RUN_STATUS_SUCCEEDED:
            raise RuntimeError(f"a run ended as {status}")
        else:
            self.latencies_s.append(time.perf_counter() - began)


async def load(
    seconds: float, replicas: list[int], at_once: list[int]
) -> list[dict[str, float | list[float]]]:
    """Every number of replicas with every number of callers; figures of each case."""
    quiet = TelemetrySettings.load(log_level="warning", otlp_endpoint=None)
    found = []
    with setup_telemetry("load", quiet) as telemetry:
        async with durable_store() as store, open_harness(telemetry, five_agents()) as harness:
            for count in replicas:
                async with AsyncExitStack() as stack:
                    dsn = await store.fresh_log(f"load_{count}")
                    gateways = [
                        await stack.enter_async_context(
                            harness.gateway_process(dsn, f"gateway-{number}")
                        )
                        for number in range(count)
                    ]
                    stubs = [
                        OrchestratorServiceStub(
                            await stack.enter_async_context(
                                grpc.aio.insecure_channel(gateway.said["address"])
                            )
                        )
                        for gateway in gateways
                    ]
                    await _for_a_while(stubs, 4, time.perf_counter() + _WARM_UP_S)
                    for callers in at_once:
                        found.append(await _case(store, gateways, stubs, callers, seconds))
                        print(_line(found[-1]), flush=True)
    return found


async def _case(
    store: Store, gateways: list[Child], stubs: list[Any], callers: int, seconds: float
) -> dict[str, Any]:
    samples: list[float] = []
    before, server = [each.cpu_s for each in gateways], store.cpu_s()

    async def sample() -> None:
        for _ in range(_SAMPLES):
            await asyncio.sleep(seconds / _SAMPLES)
            samples.append(round(max(each.rss_mib for each in gateways), 1))

    began = time.perf_counter()
    sampling = asyncio.create_task(sample())
    try:
        asked = await _for_a_while(stubs, callers, began + seconds)
        await sampling
    finally:
        sampling.cancel()
    took_s = time.perf_counter() - began
    latencies = sorted(one for each in asked for one in each.latencies_s)
    cancelled = sum(each.cancelled for each in asked)
    runs = len(latencies) + cancelled
    used = [each.cpu_s - start for each, start in zip(gateways, before, strict=True)]
    gateway_ms = 1000 * sum(used) / runs
    return {
        "replicas": len(gateways),
        "at_once": callers,
        "runs": runs,
        "cancelled": cancelled,
        "reconnected": sum(each.reconnected for each in asked),
        "runs_per_s_per_replica": round(runs / took_s / len(gateways), 1),
        "p50_ms": round(1000 * statistics.median(latencies), 1),
        "p95_ms": round(1000 * latencies[int(0.95 * (len(latencies) - 1))], 1),
        "gateway_cpu_ms_per_run": round(gateway_ms, 2),
        "postgres_cpu_ms_per_run": round(1000 * (store.cpu_s() - server) / runs, 2),
        "runs_per_s_of_a_whole_core": round(1000 / gateway_ms, 1),
        "rss_mib": samples,
    }


async def _for_a_while(stubs: list[Any], callers: int, until: float) -> list[Caller]:
    """So many callers, until a moment."""
    asked = [Caller(stubs, 1000 * number + number) for number in range(callers)]

    async def work(caller: Caller) -> None:
        while time.perf_counter() < until:
            await caller.run()

    async with asyncio.TaskGroup() as group:
        for caller in asked:
            group.create_task(work(caller))
    return asked


def _line(case: dict[str, Any]) -> str:
    names = ("replicas", "at_once", "runs_per_s_per_replica", "p50_ms", "p95_ms")
    more = ("gateway_cpu_ms_per_run", "postgres_cpu_ms_per_run", "runs_per_s_of_a_whole_core")
    shown = [f"{name} {case[name]}" for name in (*names, *more, "cancelled", "reconnected")]
    return ", ".join([*shown, f"RSS {case['rss_mib'][0]} to {case['rss_mib'][-1]} MiB"])


def main() -> int:
    """Parse the command line, load, print."""
    parser = argparse.ArgumentParser(description="Capacity and memory of gateway replicas.")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each case")
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--at-once", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    options = parser.parse_args()
    found = asyncio.run(load(options.seconds, options.replicas, options.at_once))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
