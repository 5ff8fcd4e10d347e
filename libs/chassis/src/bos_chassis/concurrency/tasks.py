"""Background work with an owner: it begins with a block and has ended when the block is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any


@asynccontextmanager
async def running_task(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run ``work`` in a task called ``name`` while the block runs; then cancel it and wait for it.

    Raises:
        Exception: What the work itself raised, when the block is left.
    """
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
