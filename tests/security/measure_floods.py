"""Honest calls while strangers flood a service: how long they take, and how much memory that costs.

The 95th percentile of honest calls, one after another over a connection of their own: when the
service is quiet, beside as many honest connections with a call under way on each, and in each flood
over as many connections. Both run in a process of their own. Exits 1 if an honest call is refused,
a probe finds the service dead, or memory grows beyond the bound.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import resource
import sys
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from flood_targets import Target, separate_processes, target_at
from floods import FLOODS, flooding

from bos_postgres import create_database
from bos_testkit.postgres import embedded_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_CALLS = 100
_MEMORY_MB = 1000.0
_HONEST = "honest"


@dataclasses.dataclass
class Measured:
    """What became of some honest calls."""

    p95_ms: float
    refused: int


async def _measure(target: Target) -> Measured:
    took, refused = [], 0
    async with grpc.aio.insecure_channel(target.address) as channel:
        for _ in range(_CALLS):
            began = time.perf_counter()
            try:
                await target.honest(channel)
                alive = await target.check(channel)
            except grpc.aio.AioRpcError:
                alive = False
            refused += not alive
            took.append((time.perf_counter() - began) * 1000)
    return Measured(sorted(took)[int(_CALLS * 0.95)], refused)


@asynccontextmanager
async def _load(target: Target, kind: str, connections: int) -> AsyncIterator[None]:
    """Keep a load up from another process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "--load", kind, "--connections", str(connections)),
        *("--target", json.dumps([target.name, target.address, target.pid, target.key])),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        if not await process.stdout.readline():
            raise RuntimeError(f"the load {kind} did not start")
        yield
    finally:
        process.stdin.close()
        await process.wait()


async def _keep_up(target: Target, kind: str, connections: int) -> None:
    async with AsyncExitStack() as stack:
        if kind == _HONEST:
            tasks = [asyncio.create_task(_honest_caller(target)) for _ in range(connections)]
            stack.callback(lambda: [task.cancel() for task in tasks])
        else:
            (flood,) = [flood for flood in FLOODS if flood.name == kind]
            await stack.enter_async_context(flooding(flood, target, connections))
        print("up", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def _honest_caller(target: Target) -> None:
    async with grpc.aio.insecure_channel(
        target.address, options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        while True:
            await target.honest(channel)


async def _report(connections: int, only: str | None) -> int:
    failures = 0
    with tempfile.TemporaryDirectory() as name, embedded_server(Path(name)) as server:
        dsn = await create_database(server.dsn(), "floods")
        async with separate_processes(dsn, Path(name)) as targets:
            for target in targets:
                if only not in (None, target.name):
                    continue
                quiet = await _measure(target)
                async with _load(target, _HONEST, connections):
                    honest = await _measure(target)
                print(
                    f"{target.name}: quiet {quiet.p95_ms:.1f} ms, beside {connections} honest "
                    f"connections {honest.p95_ms:.1f} ms, memory {target.memory_mb():.0f} MB",
                    flush=True,
                )
                for flood in FLOODS:
                    if flood.for_open_methods and not target.open_methods:
                        continue
                    async with _load(target, flood.name, connections):
                        flooded = await _measure(target)
                    memory = target.memory_mb()
                    failed = flooded.refused > 0 or memory > _MEMORY_MB
                    failures += failed
                    print(
                        f"  {flood.name:<18} p95 {flooded.p95_ms:8.1f} ms, refused "
                        f"{flooded.refused}, memory {memory:.0f} MB{' FAILED' * failed}",
                        flush=True,
                    )
    return 1 if failures else 0


def main() -> int:
    """Measure, or be the load of a measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--only", help="one service: identity, memory or gateway")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    parser.add_argument("--target", help=argparse.SUPPRESS)
    given = parser.parse_args()
    # Each connection is a file, here and in the services, which inherit the limit.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if given.load is None:
        return asyncio.run(_report(given.connections, given.only))
    asyncio.run(_keep_up(target_at(*json.loads(given.target)), given.load, given.connections))
    return 0


if __name__ == "__main__":
    sys.exit(main())
