"""Blocking drivers in threads of their own: as many as allowed, each under a clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bos_mcp_db.failures import QueryTimedOut

T = TypeVar("T")


class Clock:
    """Says when a query has to end: at its time limit, or when its caller is gone."""

    def __init__(self, timeout_s: float) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._stopped = False

    def stop(self) -> None:
        """Make it end now; from any thread."""
        self._stopped = True

    def is_over(self) -> bool:
        """Whether the time is over."""
        return self._stopped or time.monotonic() >= self._deadline


class BlockingCalls:
    """Runs blocking work in at most ``threads`` threads; when a caller gives up, its clock stops.

    The work itself must look at its clock often.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._running: set[Clock] = set()

    async def run(self, work: Callable[[Clock], T], timeout_s: float) -> T:
        """Return what ``work`` returns.

        Raises:
            QueryTimedOut: its turn did not come in time.
        """
        clock = Clock(timeout_s)

        def call() -> T:
            if clock.is_over():
                raise QueryTimedOut(timeout_s)
            return work(clock)

        self._running.add(clock)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        finally:
            clock.stop()
            self._running.discard(clock)

    async def aclose(self) -> None:
        """Stop every clock, and wait for the threads."""
        for clock in tuple(self._running):
            clock.stop()
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
