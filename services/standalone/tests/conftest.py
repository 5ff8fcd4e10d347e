import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bos_client import BosClient, Reconnect
from bos_client.connection import CONNECTION_FILE, find_connection
from bos_standalone.agents import installed_agents

_ON_REQUEST = frozenset({"a2a", "mcp"})
"""Agents that start once a server is configured for them."""
BOS = Path(sys.executable).with_name("bos")


def agents_without_settings() -> set[str]:
    """Agents of this repository that run where nothing is configured."""
    return {*installed_agents()} - _ON_REQUEST


@dataclass
class Finished:
    code: int
    out: str
    err: str


async def run_bos(home: Path, *arguments: str, says: str = "", **environment: str) -> Finished:
    """Run ``bos`` of a user with this home, with these variables and standard input."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(BOS, *arguments),
        cwd=home,
        env={**kept, "HOME": str(home), **environment},
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
    )
    out, err = await process.communicate(says.encode())
    assert process.returncode is not None
    return Finished(process.returncode, out.decode(), err.decode())


@dataclass
class Folder:
    """A working directory, and the processes started in it."""

    path: Path
    environment: dict[str, str] = field(
        default_factory=lambda: {"BOS_STANDALONE_DEMO_DOCUMENTS": "false"}
    )

    async def bos(self, *arguments: str) -> Finished:
        """Run ``bos`` until it exits."""
        process = await self.begin(*arguments)
        out, err = await process.communicate()
        assert process.returncode is not None
        return Finished(process.returncode, out.decode(), err.decode())

    async def begin(self, *arguments: str) -> Process:
        pipe = asyncio.subprocess.PIPE
        kept = ("PATH", "PYTHONPATH", "XDG_CONFIG_HOME")
        inherited = {name: os.environ[name] for name in kept if name in os.environ}
        environment = {**inherited, **self.environment}
        return await asyncio.create_subprocess_exec(
            *(BOS, *arguments), cwd=self.path, env=environment, stdout=pipe, stderr=pipe
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Process]:
        """A running ``bos serve all``; SIGTERM stops it unless it has exited already."""
        process = await self.begin("serve", "all")
        try:
            assert process.stdout is not None
            try:
                await process.stdout.readuntil(b"Ctrl-C stops.")
            except asyncio.IncompleteReadError as error:
                assert process.stderr is not None
                raise AssertionError((error.partial, await process.stderr.read())) from None
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.communicate()

    def client(self) -> BosClient:
        """A client of the standalone in this folder, with reconnects enough for a restart."""
        assert (self.path / CONNECTION_FILE).exists()
        found = find_connection(None, None, self.path)
        reconnect = Reconnect(attempts=200, first_s=0.05, cap_s=0.25)
        return BosClient(found.target, api_key=found.api_key, reconnect=reconnect)


@pytest.fixture(autouse=True, scope="session")
def no_registrations_of_the_developer(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """Standalones of these tests are not registered in the developer's configuration folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Folder]:
    async with AsyncExitStack():
        yield Folder(tmp_path)


@pytest.fixture
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the developer's environment, and an empty working directory."""
    for name in list(os.environ):
        if name.startswith(("BOS_", "OPENAI_", "AZURE_OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BOS_STANDALONE_DEMO_DOCUMENTS", "false")
    monkeypatch.chdir(tmp_path)
