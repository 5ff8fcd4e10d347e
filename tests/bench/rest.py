"""500 idle clients of a stream and 50 runs a second over REST: ``make bench NAME=rest``.

Starts a gateway, the REST gateway and the shortest of runs behind them as processes of their own,
holds streams open on one run that goes on, asks without a pause, and says what came and what it
cost. A run counts only if its stream had every event in order up to ``done``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from bos_bench.processes import child
from bos_bench.rest import rest_gateway
from bos_bench.short_harness import HOLD
from bos_bench.store import durable_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_bench.processes import Child

QUESTION = {"question": "what is new"}
# One whose plan never comes, so that there is something to wait for.
HELD = {"question": f"{HOLD} this"}


@dataclass
class Outcome:
    """What the clients saw."""

    seconds: list[float] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    missed: int = 0


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[int, str]]:
    """Sequence and name of each event; 0 where there is no id."""
    sequence, name = 0, ""
    async for raw in response.content:
        line = raw.decode().rstrip("\n")
        if line.startswith("id: "):
            sequence = int(line[4:].partition(".")[0])
        elif line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: ") and name == "error":
            name = f"error {json.loads(line[6:])['error']['status']}"
        elif not line and name:
            yield sequence, name
            sequence, name = 0, ""


async def one_run(http: aiohttp.ClientSession, outcome: Outcome) -> None:
    """Ask, follow to the end, check that nothing is missing."""
    began = time.monotonic()
    try:
        async with http.post("/v1/runs:askStream", json=QUESTION) as response:
            if response.status != 200:
                outcome.ends[f"HTTP {response.status}"] += 1
                return
            seen = [event async for event in events(response)]
    except (aiohttp.ClientError, TimeoutError) as error:
        outcome.ends[type(error).__name__] += 1
        return
    outcome.seconds.append(time.monotonic() - began)
    outcome.ends[seen[-1][1] if seen else "nothing"] += 1
    sequences = [number for number, name in seen if number and name != "answer_delta"]
    # This kind of run hides no event, so every gap would be a lost one.
    if sequences != list(range(1, len(sequences) + 1)):
        outcome.missed += 1


async def idle(http: aiohttp.ClientSession, run_id: str, opened: asyncio.Semaphore) -> str:
    """Hold a stream open; returns how it ended."""
    try:
        async with http.get(f"/v1/runs/{run_id}:watch") as response:
            opened.release()
            async for _ in events(response):
                pass
            return "ended"
    except (aiohttp.ClientError, TimeoutError) as error:
        return type(error).__name__


async def held_run(http: aiohttp.ClientSession) -> str:
    """Ask what will not be planned; returns the run's id, the stream dropped."""
    async with http.post("/v1/runs:askStream", json=HELD) as response:
        async for _ in events(response):
            break
    async with http.get("/v1/runs", params={"page_size": 1}) as response:
        return str((await response.json())["runs"][0]["run_id"])


async def load(rest: Child, gateway: Child, options: argparse.Namespace) -> None:
    """The whole measurement; ends REST itself, to see it drain."""
    outcome = Outcome()
    async with aiohttp.ClientSession(
        f"http://{rest.said['address']}",
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=600),
    ) as http:
        await one_run(http, Outcome())
        run_id = await held_run(http)
        before = rest.rss_mib
        opened = asyncio.Semaphore(0)
        waiting = [asyncio.create_task(idle(http, run_id, opened)) for _ in range(options.clients)]
        for _ in waiting:
            await opened.acquire()
        open_mib = rest.rss_mib
        print(f"idle clients     {len(waiting)}: {before:.1f} -> {open_mib:.1f} MiB")
        samples, of_gateway = [], []
        tasks = set()
        begun = time.monotonic()
        for number in range(int(options.rate * options.seconds)):
            await asyncio.sleep(max(0.0, begun + number / options.rate - time.monotonic()))
            task = asyncio.create_task(one_run(http, outcome))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            if number % int(options.rate * 10) == 0:
                samples.append(rest.rss_mib)
                of_gateway.append(gateway.rss_mib)
        await asyncio.gather(*tasks)
        took = time.monotonic() - begun
        still = sum(not task.done() for task in waiting)
        print(f"idle clients     {still} of {len(waiting)} still there after the runs")
        print(
            f"runs             {sum(outcome.ends.values())} in {took:.1f} s: {dict(outcome.ends)}"
        )
        print(f"missed events    {outcome.missed}")
        if outcome.seconds:
            p50, p99 = (statistics.quantiles(outcome.seconds, n=100)[i] for i in (49, 98))
            print(f"run, stream      p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms")
        print("rest, MiB        " + " ".join(f"{sample:.1f}" for sample in samples))
        print("gateway, MiB     " + " ".join(f"{sample:.1f}" for sample in of_gateway))
        began = time.monotonic()
        rest.process.terminate()
        ends = Counter(await asyncio.gather(*waiting))
        print(f"drain            idle streams {dict(ends)} after {time.monotonic() - began:.2f} s")


async def main(options: argparse.Namespace) -> None:
    """Start the processes, measure, stop."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = await enter(durable_store())
        harness = await enter(child("harness", "bos_bench.short_harness", logs=logs))
        gateway = await enter(
            child(
                "gateway",
                "bos_gateway",
                logs=logs,
                BOS_GATEWAY_STORE_URL=await store.fresh_log("rest_load"),
                BOS_GATEWAY_PLANNER_TARGET=harness.said["planner"],
                BOS_GATEWAY_COMPOSER_TARGET=harness.said["composer"],
                BOS_GATEWAY_AGENT_TARGETS=harness.said["agents"],
                BOS_GATEWAY_PLAN_TIMEOUT_S="900",
                BOS_GATEWAY_RUN_TIMEOUT_S="900",
                BOS_LOG_LEVEL="error",
            )
        )
        rest = await enter(rest_gateway(gateway.said["address"]))
        await load(rest, gateway, options)
        print(f"exit code        {await rest.process.wait()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    asyncio.run(main(parser.parse_args()))
