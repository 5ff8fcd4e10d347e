"""500 idle clients of a stream and 50 runs a second over REST: ``make rest-load``.

Starts a standalone with the REST gateway in a folder of its own, holds streams open on one run that
goes on, asks without a pause, and says what came and what it cost. A run counts only if its stream
had every event in order up to ``done``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BOS = Path(sys.executable).with_name("bos")
# The shortest run that there is: no model, one step.
QUESTION = {"question": "what is 2 + 2", "prefer_agents": ["computation"]}
# One whose plan never comes, so that there is something to wait for.
HELD = {"question": "hold this", "prefer_agents": ["computation"]}


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
            sequence = int(line[4:])
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
    sequences = [sequence for sequence, _ in seen if sequence]
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


@asynccontextmanager
async def model() -> AsyncIterator[str]:
    """A model that keeps HELD waiting and declines everything else; yields its base URL."""

    async def reply(request: web.Request) -> web.Response:
        if HELD["question"] in await request.text():
            await asyncio.Event().wait()
        return web.json_response({"error": {"message": "declined"}}, status=400)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", reply)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def held_run(http: aiohttp.ClientSession) -> str:
    """Ask what will not be planned; returns the run's id, the stream dropped."""
    async with http.post("/v1/runs:askStream", json=HELD) as response:
        async for _ in events(response):
            break
    async with http.get("/v1/runs", params={"page_size": 1}) as response:
        return str((await response.json())["runs"][0]["run_id"])


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def child_of(pid: int, name: str) -> int:
    """The child of ``pid`` with that name."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        own, _, rest = fields.partition(" (")
        command, _, after = rest.rpartition(") ")
        if command == name and int(after.split()[1]) == pid:
            return int(own)
    raise SystemExit(f"{pid} has no child {name}")


async def load(url: str, key: str, pid: int, options: argparse.Namespace) -> None:
    """The whole measurement; ends the house itself, to see it drain."""
    rest = child_of(pid, "bos-rest")
    outcome = Outcome()
    async with aiohttp.ClientSession(
        url,
        headers={"Authorization": f"Bearer {key}"},
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=600),
    ) as http:
        await one_run(http, Outcome())
        run_id = await held_run(http)
        before = rss_mib(rest)
        opened = asyncio.Semaphore(0)
        waiting = [asyncio.create_task(idle(http, run_id, opened)) for _ in range(options.clients)]
        for _ in waiting:
            await opened.acquire()
        open_mib = rss_mib(rest)
        print(f"idle clients     {len(waiting)}: {before:.1f} -> {open_mib:.1f} MiB")
        samples = []
        tasks = set()
        begun = time.monotonic()
        for number in range(int(options.rate * options.seconds)):
            await asyncio.sleep(max(0.0, begun + number / options.rate - time.monotonic()))
            task = asyncio.create_task(one_run(http, outcome))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            if number % int(options.rate * 10) == 0:
                samples.append(rss_mib(rest))
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
        began = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        ends = Counter(await asyncio.gather(*waiting))
        print(f"drain            idle streams {dict(ends)} after {time.monotonic() - began:.2f} s")


def connection(folder: Path) -> dict[str, str]:
    """What the house wrote for its clients."""
    text = (folder / ".data/standalone.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


async def main(options: argparse.Namespace) -> None:
    """Start a house, measure, stop."""
    with tempfile.TemporaryDirectory() as folder:
        async with model() as base_url:
            process = await asyncio.create_subprocess_exec(
                *(BOS, "serve", "all"),
                cwd=folder,
                stdout=asyncio.subprocess.PIPE,
                env={
                    "PATH": os.environ["PATH"],
                    "BOS_LOG_LEVEL": "error",
                    "OPENAI_BASE_URL": base_url,
                    "BOS_MODEL": "declines",
                    "BOS_MODEL_TIMEOUT_S": "900",
                    "BOS_PLANNER_MODEL_TIMEOUT_S": "900",
                    "BOS_GATEWAY_PLAN_TIMEOUT_S": "900",
                    "BOS_STANDALONE_REST_PORT": "0",
                    "BOS_SERVER_MAX_CONCURRENT_RPCS": "4000",
                },
            )
            try:
                assert process.stdout is not None
                await process.stdout.readuntil(b"Ctrl-C stops.")
                content = connection(Path(folder))
                await load(content["rest_url"], content["api_key"], process.pid, options)
                print(f"exit code        {await process.wait()}")
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    asyncio.run(main(parser.parse_args()))
