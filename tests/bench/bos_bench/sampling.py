"""Where the processor time of a run goes: a sampling profiler that hardly slows what it watches.

A sample is the stack of the main thread when another millisecond of the process's processor time
is over. It belongs to the innermost of our packages or of the libraries in `_GROUPS`; what the
standard library does counts for its caller. C code (protobuf, asyncpg's protocol, grpc's core)
counts for the Python line that called it; grpc's coroutines are C as well and are called by the
event loop itself, so they are in its group.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING

from bos_bench.run import endless_runs

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from bos_bench.store import Store
    from bos_chassis.telemetry import Telemetry

_INTERVAL_S = 0.001
_SHOWN = 25
_LOOP = "event loop, grpc in C"
_LOOP_ITSELF = asyncio.BaseEventLoop.run_forever.__code__  # what is outside it starts the bench
_GROUPS = {
    "asyncpg": "log writer, asyncpg",
    "run_log": "log writer, asyncpg",
    "bos_postgres": "log writer, asyncpg",
    "opentelemetry": "spans",
    "prometheus_client": "metrics",
    "structlog": "logging",
    "protobuf": "protobuf in Python, validation",
    "protovalidate": "protobuf in Python, validation",
    "celpy": "protobuf in Python, validation",
    "grpc": "grpc in Python",
    "graph.py": "plan graph and references",
    "references.py": "plan graph and references",
    "decide.py": "decide",
    "bos_gateway": "gateway, the rest of it",
    "interceptors": "interceptors",
    "bos_chassis": "chassis, the rest of it",
    "bos_agentkit": "agentkit and agents",
    "bos_testkit": "agentkit and agents",
    "bos_bench": "bench: client and doubles",
}
"""By a folder or file of the path, in order of preference within one path."""


class Sampler:
    """Looks at the main thread while its block lasts."""

    def __init__(self) -> None:
        self.stacks: Counter[tuple[CodeType, ...]] = Counter()
        """Functions on the stack, innermost first, and how often it was seen."""

    def __enter__(self) -> Sampler:
        self._previous = signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, _INTERVAL_S, _INTERVAL_S)
        return self

    def __exit__(self, *exc_info: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._previous)

    def _look(self, _: int, frame: FrameType | None) -> None:
        stack: list[CodeType] = []
        while frame is not None:
            stack.append(frame.f_code)
            frame = None if frame.f_code is _LOOP_ITSELF else frame.f_back
        self.stacks[tuple(stack)] += 1


async def profile_text(store: Store, telemetry: Telemetry, seconds: float, rows: int) -> str:
    """Sample five-step runs, 16 at once, for ``seconds``; the result as text.

    Args:
        store: Where the log goes.
        telemetry: Of the doubles.
        seconds: How long.
        rows: Rows of the table that each agent returns; 0 for none.
    """
    async with endless_runs(store, telemetry, rows) as asker:
        runs = asker.completed
        process, loop = time.process_time(), time.thread_time()
        with Sampler() as sampler:
            await asyncio.sleep(seconds)
        process, loop = time.process_time() - process, time.thread_time() - loop
        runs = asker.completed - runs
    groups: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    for stack, count in sampler.stacks.items():
        groups[_group(stack)] += count
        alone[_name(stack[0])] += count
        inside.update(dict.fromkeys(map(_name, stack), count))
    lines = [
        f"{runs} runs: {process / runs * 1000:.2f} ms of processor time per run, "
        f"{loop / runs * 1000:.2f} ms of it on the event loop's thread"
    ]
    for title, counts in {
        "by group": groups,
        "by function of ours, with everything it calls": _ours(inside),
        "by function alone": alone,
    }.items():
        lines += ["", title]
        for name, count in counts.most_common(_SHOWN):
            share = count / sampler.stacks.total()
            lines.append(f"  {share:6.1%}  {share * process / runs * 1000:6.2f} ms  {name}")
    return "\n".join(lines)


def _ours(counts: Counter[str]) -> Counter[str]:
    own = {n: c for n, c in counts.items() if n.startswith("bos_") and "bos_bench" not in n}
    return Counter(own)


def _group(stack: tuple[CodeType, ...]) -> str:
    for code in stack:
        parts = PurePath(code.co_filename).parts
        for mark, group in _GROUPS.items():
            if mark in parts:
                return group
    return _LOOP


def _name(code: CodeType) -> str:
    parts = PurePath(code.co_filename).parts
    package = next((i for i, part in enumerate(parts) if part.startswith("bos_")), len(parts) - 2)
    return f"{'/'.join(parts[package:])} {code.co_qualname}"
