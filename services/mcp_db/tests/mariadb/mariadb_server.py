"""A MariaDB of the tests: Debian's, in a folder of its own, on loopback."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncmy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

READER = "bos_reader"
PASSWORD = "reader-password"
_START_TIMEOUT_S = 120
_STOP_TIMEOUT_S = 60


@dataclass(frozen=True)
class MariaDb:
    """A running server; ``certificate`` is the file of the authority that its own is from."""

    port: int
    socket: Path

    def url(self, database: str, user: str = READER, password: str = PASSWORD) -> str:
        """URL of a database on it."""
        return f"mariadb://{user}:{password}@127.0.0.1:{self.port}/{database}?encrypt=no"

    async def as_administrator(
        self, script: str, database: str | None = None
    ) -> list[Sequence[Any]]:
        """Run statements, one a line or divided by lines that end in ``;``; the last one's rows."""
        connection = asyncmy.Connection(
            unix_socket=str(self.socket), user="root", db=database, autocommit=True
        )
        await connection.connect()
        try:
            cursor = connection.cursor()
            for statement in script.split(";\n"):
                if statement.strip():
                    await cursor.execute(statement)
            rows: list[Sequence[Any]] = list(await cursor.fetchall()) if cursor.description else []
            return rows
        finally:
            connection.close()


@asynccontextmanager
async def running_mariadb(*options: str) -> AsyncIterator[MariaDb]:
    """An empty server as Debian installs it, with the accounts and databases of its own."""
    with tempfile.TemporaryDirectory(prefix="bos-mariadb-") as name:
        folder = Path(name)
        data, port = folder / "data", _free_port()
        user = ["--user=root"] if os.geteuid() == 0 else []
        subprocess.run(  # noqa: ASYNC221  once, before anything runs
            [
                *("mariadb-install-db", "--no-defaults", *user, f"--datadir={data}"),
                "--auth-root-authentication-method=normal",
            ],
            check=True,
            capture_output=True,
        )
        process = await asyncio.create_subprocess_exec(
            *(_program(), "--no-defaults", *user, f"--datadir={data}"),
            *(f"--socket={folder / 'socket'}", "--bind-address=127.0.0.1", f"--port={port}"),
            *(f"--tmpdir={folder}", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M"),
            # Not by name: then there is an account of localhost without a name, which comes first.
            *("--skip-name-resolve", "--skip-log-bin", *options),
            stderr=(folder / "log").open("wb"),  # noqa: ASYNC230  a file of the process
        )
        server = MariaDb(port, folder / "socket")
        try:
            await _answering(server, process, folder / "log")
            yield server
        finally:
            if process.returncode is None:
                process.terminate()
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await process.wait()


async def _answering(server: MariaDb, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(_START_TIMEOUT_S):
        while True:
            if process.returncode is not None:
                raise RuntimeError(log.read_text(errors="replace")[-2_000:])
            try:
                await server.as_administrator("SELECT 1")
            except (asyncmy.errors.MySQLError, OSError):
                await asyncio.sleep(0.05)
            else:
                return


def _program() -> str:
    return shutil.which("mariadbd") or "/usr/sbin/mariadbd"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
