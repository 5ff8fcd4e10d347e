"""How runs fare while the row of another run of their replica is locked for 14 seconds.

::

    python tests/bench/engine_locked.py [--seconds 14]

Runs are asked at a steady pace for as long without the lock and with it, on the same gateway, in
the same run of this bench; their p95 is compared. That they end at all while the lock is held is
asserted by a test (``services/gateway/tests/crash/test_trial_neighbours.py``).
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from engine_data import value
from engine_harness import Gateway, open_harness

from bos_gateway.run_log.session import SCHEMA
from bos_postgres import EmbeddedPostgres, connect, create_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MOST_RATIO = 1.5
_PER_S = 10.0
_WARM_UP = 20


@asynccontextmanager
async def row_locked(dsn: str, question: str) -> AsyncIterator[None]:
    """Hold the row of a run."""
    async with connect(dsn, schema=SCHEMA) as connection, connection.transaction():
        await connection.execute("SELECT FROM runs WHERE question = $1 FOR UPDATE", question)
        yield


async def window(gateway: Gateway, seconds: float) -> list[float]:
    """Milliseconds of every run asked in that time; one that fails counts as the whole of it."""

    async def one() -> float:
        began = time.perf_counter()
        try:
            await gateway.ask("What is new?")
        except (grpc.aio.AioRpcError, RuntimeError):
            return seconds * 1000
        return (time.perf_counter() - began) * 1000

    asked = []
    for _ in range(int(seconds * _PER_S)):
        asked.append(asyncio.create_task(one()))
        await asyncio.sleep(1 / _PER_S)
    return await asyncio.gather(*asked)


async def bench(server: EmbeddedPostgres, seconds: float) -> int:
    """Without the lock, with it, and without it again; 1 if the bound was missed."""
    dsn = await create_database(server.dsn(), "locked")
    async with open_harness() as harness, harness.gateway(dsn) as gateway:
        for _ in range(_WARM_UP):
            await gateway.ask("Up?")
        waiting = gateway.stream("slow and locked")
        await waiting.read()
        before = await window(gateway, seconds / 2)
        async with row_locked(dsn, "slow and locked"):
            harness.gated.gate.set()  # from now on its events cannot be stored
            locked = await window(gateway, seconds)
            ended = await value(dsn, "SELECT count(*) FROM runs WHERE finished_at IS NOT NULL")
        after = await window(gateway, seconds / 2)
        waiting.cancel()
    without, during = (statistics.quantiles(each, n=20)[-1] for each in ([*before, *after], locked))
    print(
        f"{len(locked)} runs asked while a row was locked for {seconds:.0f} s; "
        f"{ended} ended by then"
    )
    print(
        f"p95 of other runs: {during:.1f} ms, without the lock {without:.1f} ms, "
        f"{during / without:.2f} times (<= {MOST_RATIO})"
    )
    return int(during / without > MOST_RATIO)


async def measured(seconds: float) -> int:
    """On a server of its own."""
    with tempfile.TemporaryDirectory(prefix="bos-engine-") as folder:
        server = EmbeddedPostgres(Path(folder) / "postgres")
        try:
            async with server:
                return await bench(server, seconds)
        finally:
            with suppress(OSError):
                server.delete_data()


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs beside one whose row is locked.")
    parser.add_argument("--seconds", type=float, default=14.0, help="how long it is locked")
    return asyncio.run(measured(parser.parse_args().seconds))


if __name__ == "__main__":
    sys.exit(main())
