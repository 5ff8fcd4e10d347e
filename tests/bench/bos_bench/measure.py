"""Clocks, repetition and medians: what every part measures with."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

Figures = dict[str, float]
"""Figures of one case by name. The name ends in the unit; ``…_ratio`` has none."""

Table = dict[str, Figures]
"""Cases by name."""

Part = dict[str, Table]
"""Tables of one part by name."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure.

    Every case is measured ``rounds`` times for ``round_s`` seconds, and the median counts. Rounds
    of things that are compared take turns, so that a busy neighbour slows all of them.
    """

    rounds: int
    round_s: float
    warm_up: int
    """Operations before the first round."""
    at_once: tuple[int, ...]
    """How many callers there are, case by case."""

    @classmethod
    def full(cls) -> Effort:
        """What figures are quoted from."""
        return cls(rounds=5, round_s=0.4, warm_up=20, at_once=(1, 16, 64))

    @classmethod
    def quick(cls) -> Effort:
        """Shows that everything runs; its figures mean nothing."""
        return cls(rounds=1, round_s=0.05, warm_up=1, at_once=(1, 4))


@dataclass(frozen=True, slots=True)
class Sample:
    """What happened in one closed loop."""

    elapsed_s: float
    cpu_s: float
    """Of all threads of this process."""
    latencies_s: Sequence[float]

    @property
    def count(self) -> int:
        """Operations completed."""
        return len(self.latencies_s)

    @property
    def per_s(self) -> float:
        """Operations per second."""
        return self.count / self.elapsed_s

    @property
    def cpu_ms(self) -> float:
        """Processor time per operation, in milliseconds."""
        return self.cpu_s / self.count * 1000

    def percentile_ms(self, share: float) -> float:
        """Latency that ``share`` of the operations do not exceed, in milliseconds."""
        ordered = sorted(self.latencies_s)
        return ordered[math.ceil(share * len(ordered)) - 1] * 1000


async def closed_loop(
    workers: int, seconds: float, operation: Callable[[int], Awaitable[object]]
) -> Sample:
    """Have each worker repeat ``operation(worker)`` until the time is over, at least once."""
    latencies: list[float] = []

    async def work(worker: int) -> None:
        while True:
            began = time.perf_counter()
            await operation(worker)
            ended = time.perf_counter()
            latencies.append(ended - began)
            if ended >= end:
                return

    cpu, start = time.process_time(), time.perf_counter()
    end = start + seconds
    async with asyncio.TaskGroup() as group:
        for worker in range(workers):
            group.create_task(work(worker))
    return Sample(time.perf_counter() - start, time.process_time() - cpu, latencies)


async def warm_up(times: int, operation: Callable[[int], Awaitable[object]]) -> None:
    """Fill caches, prepare statements and open connections before anything is measured."""
    for _ in range(times):
        await operation(0)


async def compared(
    effort: Effort, counts: Sequence[int], measured: Callable[[int], Awaitable[Figures]]
) -> Table:
    """Medians of the rounds with so many callers at once, for each of the counts."""
    return {
        f"{count} at once": medians([await measured(count) for _ in range(effort.rounds)])
        for count in counts
    }


def medians(rounds: Sequence[Figures]) -> Figures:
    """The median of every figure, each for itself."""
    return {name: median(one[name] for one in rounds) for name in rounds[0]}


def cpu_seconds_of(pid: int) -> float | None:
    """Processor time of another process and its present children; None where Linux is not."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        return sum(cpu_seconds(one) for one in (pid, *children))
    except OSError:
        return None


def cpu_seconds(pid: int | str) -> float:
    """Processor time of a process, in nanoseconds where the kernel counts them; 0 without one."""
    try:
        run_ns = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]
    except OSError:
        return 0.0
    return int(run_ns) / 1e9
