"""Where the processor time of a run goes: a sampling profiler that does not slow what it watches.

Each sample belongs to the innermost frame of Python code that was running; time inside C code
(protobuf, grpc's core on the loop's thread) belongs to the Python line that called it. Threads
that run no Python are seen only as the difference between process and loop.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from bos_bench.run import endless_runs

if TYPE_CHECKING:
    from types import FrameType

    from bos_bench.store import Store
    from bos_chassis.telemetry import Telemetry

_INTERVAL_S = 0.001
_SHOWN = 25
_GROUPS = (
    ("log writer, asyncpg", ("asyncpg", "bos_gateway/run_log.py", "bos_postgres")),
    ("spans", ("opentelemetry",)),
    ("metrics", ("prometheus_client",)),
    ("logging", ("structlog",)),
    ("protobuf", ("google/protobuf", "protovalidate", "celpy", "/bos/")),
    ("chassis", ("bos_chassis",)),
    ("gateway", ("bos_gateway",)),
    ("agentkit and agents", ("bos_agentkit", "bos_testkit", "bos_llm")),
    ("bench (client, doubles)", ("bos_bench",)),
    ("grpc", ("grpc",)),
    ("event loop", ("asyncio", "selectors.py", "contextlib.py", "contextvars")),
)


class Sampler:
    """Looks at the main thread once per millisecond of the process's processor time."""

    def __init__(self) -> None:
        self.leaves: Counter[tuple[str, str]] = Counter()
        self.inside: Counter[tuple[str, str]] = Counter()
        self.groups: Counter[str] = Counter()
        self.samples = 0

    def __enter__(self) -> Sampler:
        self._previous = signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, _INTERVAL_S, _INTERVAL_S)
        return self

    def __exit__(self, *exc_info: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._previous)

    def _look(self, _: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        self.samples += 1
        self.leaves[_name(frame)] += 1
        self.groups[_group(frame)] += 1
        seen: set[tuple[str, str]] = set()
        outer: FrameType | None = frame
        while outer is not None:
            seen.add(_name(outer))
            outer = outer.f_back
        self.inside.update(seen)


async def profile_text(store: Store, telemetry: Telemetry, seconds: float) -> str:
    """Sample five-step runs, 16 at once, for ``seconds``; the result as text."""
    async with endless_runs(store, telemetry) as asker:
        runs = asker.completed
        process, loop = time.process_time(), time.thread_time()
        with Sampler() as sampler:
            await asyncio.sleep(seconds)
        process, loop = time.process_time() - process, time.thread_time() - loop
        runs = asker.completed - runs
    lines = [
        f"{runs} runs: {process / runs * 1000:.2f} ms of processor time per run, "
        f"{loop / runs * 1000:.2f} ms of it on the event loop's thread",
        "",
        "by group",
    ]
    lines += _lines(sampler, {(name, ""): count for name, count in sampler.groups.items()})
    lines += ["", "by function, with everything it calls", *_lines(sampler, sampler.inside)]
    lines += ["", "by function alone", *_lines(sampler, sampler.leaves)]
    return "\n".join(lines)


def _lines(sampler: Sampler, counts: dict[tuple[str, str], int]) -> list[str]:
    ranked = sorted(counts.items(), key=lambda item: -item[1])[:_SHOWN]
    return [
        f"  {count / sampler.samples:6.1%}  {' '.join(name).rstrip()}" for name, count in ranked
    ]


def _name(frame: FrameType) -> tuple[str, str]:
    path = Path(frame.f_code.co_filename)
    return "/".join(path.parts[-2:]), frame.f_code.co_qualname


def _group(frame: FrameType) -> str:
    path = frame.f_code.co_filename
    return next(
        (name for name, marks in _GROUPS if any(mark in path for mark in marks)), "everything else"
    )
