"""`make bench NAME=soak`: memory of a gateway over many runs, most of whose clients behave badly.

A third of the clients leave in the middle of the stream, a third cancel their run, a third stay to
the end. The gateway is a process of its own; planner, composer and agents are here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from bos.gateway.v1 import (
    RUN_STATUS_CANCELLED,
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    AskStreamRequest,
    CancelRunRequest,
    ListRunsRequest,
    OrchestratorServiceStub,
    WatchRunRequest,
)
from bos_bench.doubles import Harness, open_harness
from bos_bench.processes import child
from bos_bench.store import durable_store
from bos_chassis.settings import TelemetrySettings
from bos_chassis.telemetry import setup_telemetry

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from bos_bench.processes import Child

_AT_ONCE = 16
_SAMPLES = 20
_TIMEOUT_S = 60


class Client:
    """Asks, and behaves in one of three ways.

    Args:
        channel: To the gateway.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = OrchestratorServiceStub(channel)
        self.ended = dict.fromkeys(("stayed", "left", "cancelled", "too late to cancel"), 0)

    async def run(self, number: int) -> None:
        """One run; every third client stays.

        Raises:
            RuntimeError: a run ended as none should.
        """
        request = AskStreamRequest(request=AgentRequest(question=f"Question {number}?"))
        call = self._stub.AskStream(request, timeout=_TIMEOUT_S)
        try:
            async for message in call:
                event = message.event
                if event.HasField("step_started") and number % 3 == 1:
                    self.ended["left"] += 1
                    return
                if event.HasField("step_started") and number % 3 == 2:
                    cancel = CancelRunRequest(run_id=event.run_id, reason="soak")
                    await self._stub.CancelRun(cancel, timeout=_TIMEOUT_S)
                    await self._cancelled(event.run_id)
                    return
                if event.HasField("run_finished"):
                    if event.run_finished.response.status != RUN_STATUS_SUCCEEDED:
                        raise RuntimeError(f"a run ended badly: {event.run_finished.response}")
                    self.ended["stayed"] += 1
        finally:
            call.cancel()

    async def _cancelled(self, run_id: str) -> None:
        call = self._stub.WatchRun(WatchRunRequest(run_id=run_id), timeout=_TIMEOUT_S)
        try:
            async for message in call:
                if message.event.HasField("run_finished"):
                    status = message.event.run_finished.response.status
                    won = status == RUN_STATUS_CANCELLED
                    self.ended["cancelled" if won else "too late to cancel"] += 1
                    return
        finally:
            call.cancel()

    async def unfinished(self) -> int:
        """Runs that have not ended, of the newest hundred."""
        page = await self._stub.ListRuns(ListRunsRequest(page_size=100), timeout=_TIMEOUT_S)
        ended = (RUN_STATUS_SUCCEEDED, RUN_STATUS_CANCELLED)
        return sum(run.status not in ended for run in page.runs)


def _gateway(harness: Harness, dsn: str) -> AbstractAsyncContextManager[Child]:
    """A gateway in a process of its own."""
    return child(
        "gateway",
        "bos_gateway",
        BOS_GATEWAY_STORE_URL=dsn,
        BOS_GATEWAY_PLANNER_TARGET=harness.planner,
        BOS_GATEWAY_COMPOSER_TARGET=harness.composer,
        BOS_GATEWAY_AGENT_TARGETS=",".join(f"{name}={at}" for name, at in harness.targets.items()),
        BOS_GATEWAY_TELEMETRY__LOG_LEVEL="warning",
    )


async def soak(runs: int) -> dict[str, object]:
    """Do the runs; what the gateway held after each twentieth of them."""
    telemetry_settings = TelemetrySettings.load(log_level="warning", otlp_endpoint=None)
    with setup_telemetry("soak", telemetry_settings) as telemetry:
        async with durable_store() as store, open_harness(telemetry) as harness:
            dsn = await store.fresh_log("soak")
            async with (
                _gateway(harness, dsn) as gateway,
                grpc.aio.insecure_channel(gateway.said["address"]) as channel,
            ):
                return await _soaked(Client(channel), gateway, runs)


async def _soaked(client: Client, gateway: Child, runs: int) -> dict[str, object]:
    samples: list[dict[str, float]] = []
    numbers = iter(range(runs))
    began = time.perf_counter()

    async def work() -> None:
        for number in numbers:
            await client.run(number)
            if (number + 1) % max(1, runs // _SAMPLES) == 0:
                samples.append(
                    {
                        "runs": number + 1,
                        "rss_mib": gateway.rss_mib,
                        "threads": gateway.threads,
                        "files": gateway.open_files,
                    }
                )
                print({key: round(value, 1) for key, value in samples[-1].items()}, flush=True)

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(work())
    took_s = time.perf_counter() - began
    async with asyncio.timeout(_TIMEOUT_S):
        # Runs of disconnected clients continue; no event covers all runs, so this polls.
        while await client.unfinished():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    # The first quarter fills pools and caches; what comes after it should not grow.
    later = samples[len(samples) // 4 :]
    slope = statistics.linear_regression(
        [sample["runs"] / 1000 for sample in later], [sample["rss_mib"] for sample in later]
    ).slope
    return {
        "runs": runs,
        "seconds": round(took_s, 1),
        "ended": client.ended,
        "samples": samples,
        "rss_mib_per_1000_runs": round(slope, 3),
    }


def main() -> int:
    """Parse the command line, soak, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the samples here")
    options = parser.parse_args()
    figures = asyncio.run(soak(options.runs))
    print(json.dumps({key: value for key, value in figures.items() if key != "samples"}, indent=2))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
