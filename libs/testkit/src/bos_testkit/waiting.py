"""Waiting for a condition instead of sleeping."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


async def eventually(condition: Callable[[], bool], *, within_s: float = 60.0) -> None:
    """Return as soon as ``condition()`` holds.

    Raises:
        TimeoutError: it does not hold within ``within_s`` seconds.
    """
    # What is waited for happens elsewhere (a server, a pool) and sets no event.
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
