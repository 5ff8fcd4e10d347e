"""Services that run as processes of their own while cells are tried."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

START_S = 120.0
"""For a service, or an agent's step, to begin."""


async def start_process(
    stack: AsyncExitStack, name: str, variables: dict[str, str]
) -> tuple[str, int]:
    """Start a service as a process of its own; its address, and the port of its metrics."""
    kept = {each: os.environ[each] for each in ("PATH", "PYTHONPATH") if each in os.environ}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"bos_{name}"),
        env={**kept, **variables},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    stack.push_async_callback(_stop, process)
    assert process.stdout is not None
    async with asyncio.timeout(START_S):
        line = await process.stdout.readline()
    assert line, f"{name} did not start"
    said = json.loads(line)
    return said["address"], said["metrics_port"]


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
