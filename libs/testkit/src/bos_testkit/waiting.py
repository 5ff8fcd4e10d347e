"""Waiting for a condition instead of sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_LONGEST_PAUSE_S = 0.01


async def eventually(condition: Callable[[], bool], *, within_s: float = 60.0) -> None:
    """Return as soon as ``condition()`` holds.

    Raises:
        TimeoutError: it does not hold within ``within_s`` seconds.
    """
    # What is waited for happens elsewhere (a server, a pool) and sets no event.
    pause_s = 0.001
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(pause_s)
            # A condition may be dear, and what it waits for may share this event loop.
            pause_s = min(pause_s * 1.2, _LONGEST_PAUSE_S)
