"""Services as processes that are killed and come back where they were."""

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bos_testkit.processes import free_port

_START_S = 300.0
_STOP_S = 30.0
_KEPT = ("PATH", "PYTHONPATH", "XDG_CONFIG_HOME")


@dataclass
class Killable:
    """One service, whose address outlives its processes."""

    name: str
    module: str
    settings: Mapping[str, str]
    log: Path
    port: int = field(default_factory=free_port)
    kills: int = 0
    _process: Process | None = None

    @property
    def address(self) -> str:
        """Where it listens, whichever process it is."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start a process, and wait until it has said that it is up.

        Raises:
            AssertionError: it ended before.
        """
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        with self.log.open("ab") as errors:
            process = self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self.module),
                env={**kept, **self.settings, "BOS_SERVER_PORT": str(self.port)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        assert process.stdout is not None
        said = await asyncio.wait_for(process.stdout.readline(), _START_S)
        assert said, f"{self.name} did not start: {self.log.read_text()[-4000:]}"

    async def kill(self) -> None:
        """``kill -9``, and wait until the process is gone."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self.kills += 1

    async def restart(self) -> None:
        """Kill it, and start it again at the same address."""
        await self.kill()
        await self.start()

    async def stop(self) -> None:
        """End it for good, if it is up."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_S)
        except TimeoutError:
            await self.kill()


@asynccontextmanager
async def running(services: Mapping[str, Killable]) -> AsyncIterator[None]:
    """All of them, started concurrently and stopped with the block."""
    try:
        async with asyncio.TaskGroup() as starting:
            for service in services.values():
                starting.create_task(service.start())
        yield
    finally:
        await asyncio.gather(*(service.stop() for service in services.values()))
