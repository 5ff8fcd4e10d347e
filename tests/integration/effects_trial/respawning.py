"""Services as processes of their own that are killed, and come back at the same address."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from bos_testkit.forked import ForkedProcess, forked_process
from bos_testkit.processes import free_port

_START_S = 300.0
# What a program needs to be found, and where the developer's own folders are not.
_KEPT = ("PATH", "PYTHONPATH", "XDG_CONFIG_HOME")
_IMPORTED = ("bos_gateway.service", "bos_api_docs.service", "bos_files.service", "bos_mail.service")


class Respawning:
    """A service; whenever it is killed it is started again at its port.

    Args:
        module: What ``python -m`` runs.
        settings: Its environment, without its port.
        log: File for what it logs.
        pause_s: How long it stays away after a death; not at all by default.
    """

    def __init__(
        self,
        module: str,
        settings: Mapping[str, str],
        log: Path,
        pause_s: Callable[[], float] = float,
    ) -> None:
        self.port = free_port()
        self.kills = 0
        self._module = module
        self._settings = {**settings, "BOS_SERVER_PORT": str(self.port)}
        self._log = log
        self._pause_s = pause_s
        self._process: ForkedProcess | None = None
        self._is_up = asyncio.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def up(self) -> None:
        await asyncio.wait_for(self._is_up.wait(), _START_S)

    def kill(self) -> bool:
        """``kill -9``; whether there was anything to kill."""
        if self._process is None:
            return False
        self._process.kill()
        self._process = None
        self._is_up.clear()
        self.kills += 1
        return True

    async def restart(self) -> None:
        """Kill it, and wait until it is up again at the same address."""
        self.kill()
        await self.up()

    async def serve(self) -> None:
        """Start it, again and again, until this is cancelled.

        Raises:
            AssertionError: it ended by itself.
        """
        while True:
            kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
            with self._log.open("ab") as errors:
                started = forked_process(
                    *("-m", self._module),
                    environment={**kept, **self._settings},
                    errors=errors,
                    imported=_IMPORTED,
                )
                async with started as process:
                    line = await asyncio.wait_for(process.stdout.readline(), _START_S)
                    assert json.loads(line)["address"], f"{self._module}: see {self._log}"
                    self._process = process
                    self._is_up.set()
                    ended = await process.wait()
            assert ended == -signal.SIGKILL, f"{self._module} ended by itself: see {self._log}"
            await asyncio.sleep(self._pause_s())


@asynccontextmanager
async def running(*services: Respawning) -> AsyncIterator[None]:
    """All of them, once each has started, until the block is left.

    Raises:
        AssertionError: One ended without being killed.
    """
    serving = [asyncio.create_task(each.serve(), name=each.address) for each in services]
    try:
        starting = asyncio.gather(*(each.up() for each in services))
        await asyncio.wait([starting, *serving], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
        _raise_first(serving)
        await starting
        yield
        _raise_first(serving)
    finally:
        for each in serving:
            each.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def _raise_first(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        if task.done():
            task.result()
