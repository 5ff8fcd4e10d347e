import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from bos_cli.main import main
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
    """Run ``bos`` of a user with this home in this process, with this standard input."""
    variables = {"XDG_CONFIG_HOME": str(home), **environment}
    done = await asyncio.to_thread(CliRunner().invoke, main, arguments, input=says, env=variables)
    return Finished(done.exit_code, done.stdout, done.stderr)


@dataclass
class Folder:
    """A working directory, and the processes started in it."""

    path: Path
    environment: dict[str, str] = field(
        default_factory=lambda: {"BOS_STANDALONE_DEMO_DOCUMENTS": "false"}
    )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Process]:
        """A running ``bos serve all``; SIGTERM stops it unless it has exited already."""
        pipe = asyncio.subprocess.PIPE
        kept = ("PATH", "PYTHONPATH", "XDG_CONFIG_HOME")
        inherited = {name: os.environ[name] for name in kept if name in os.environ}
        environment = {**inherited, **self.environment}
        process = await asyncio.create_subprocess_exec(
            *(BOS, "serve", "all"), cwd=self.path, env=environment, stdout=pipe, stderr=pipe
        )
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
def folder(tmp_path: Path, started_before: Callable[[Path], Path]) -> Folder:
    started_before(tmp_path / ".data")
    return Folder(tmp_path)


@pytest.fixture
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the developer's environment, and an empty working directory."""
    for name in list(os.environ):
        if name.startswith(("BOS_", "OPENAI_", "AZURE_OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BOS_STANDALONE_DEMO_DOCUMENTS", "false")
    monkeypatch.chdir(tmp_path)
