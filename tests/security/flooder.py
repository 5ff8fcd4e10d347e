"""A process of its own that floods, so that honest callers are disturbed by the service alone.

It takes a line of JSON for each flood, says ``up`` when all of it has been sent once, keeps it up
until the next line, and says ``down``.
"""

import asyncio
import json
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from .flood_targets import Target
from .floods import flooding, named

_PATIENCE_S = 300.0


class Flooder:
    """The process; made by :func:`flooder`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @asynccontextmanager
    async def flooding(self, name: str, target: Target, connections: int) -> AsyncIterator[None]:
        """Keep a flood up; inside all of it has been sent once."""
        order = {"flood": name, "target": asdict(target), "connections": connections}
        await self._say(json.dumps(order), "up")
        try:
            yield
        finally:
            await self._say("stop", "down")

    async def _say(self, line: str, answer: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()
        got = await asyncio.wait_for(self._process.stdout.readline(), _PATIENCE_S)
        assert got.decode().strip() == answer, f"{line}: {got!r}"


@asynccontextmanager
async def flooder() -> AsyncIterator[Flooder]:
    """A process that floods on demand; it ends with the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "security.flooder"),
        cwd=Path(__file__).parents[1],  # as a module of its package, whose parts it imports
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Flooder(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _PATIENCE_S)
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _serve() -> None:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        order = json.loads(line)
        target = Target(**order["target"])
        async with flooding(named(order["flood"]), target, int(order["connections"])):
            print("up", flush=True)
            await reader.readline()
        print("down", flush=True)


if __name__ == "__main__":
    # Each connection is a file.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_serve())
