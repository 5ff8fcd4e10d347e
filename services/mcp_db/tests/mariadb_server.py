"""A MariaDB of the tests: Debian's, in a folder of its own, on loopback; `make test-mariadb`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import asyncmy
import pytest

from bos_mcp_db.provisioning import provision_mysql
from bos_mcp_db.settings import DatabaseSettings
from bos_testkit.processes import free_port

READER = "bos_reader"
PASSWORD = "reader-password"
_START_TIMEOUT_S = 120
_STOP_TIMEOUT_S = 60
_numbers = count(1)

_SCHEMA = """\
CREATE TABLE customers (
    customer_id INT PRIMARY KEY, name VARCHAR(40) NOT NULL,
    city VARCHAR(40) UNIQUE COMMENT 'Seat of the company'
) COMMENT 'Who buys';
CREATE TABLE secrets (secret_id INT PRIMARY KEY, word TEXT);
CREATE TABLE orders (
    order_id INT PRIMARY KEY, customer_id INT NOT NULL, secret_id INT, amount DECIMAL(12, 2),
    FOREIGN KEY (customer_id) REFERENCES customers (customer_id),
    FOREIGN KEY (secret_id) REFERENCES secrets (secret_id)
);
INSERT INTO customers VALUES (1, 'Asha', 'Pune'), (2, 'Ravi', 'Delhi'), (3, 'Mira', 'Agra');
INSERT INTO secrets VALUES (1, 'hush');
INSERT INTO orders SELECT seq, 1 + seq % 3, NULL, seq * 10 FROM seq_1_to_500;
ANALYZE TABLE customers, orders
"""
TABLES = ("customers", "orders")


@dataclass(frozen=True)
class MariaDb:
    """A running server."""

    port: int
    socket: Path

    def url(self, database: str, *, options: str = "encrypt=no", user: str = READER) -> str:
        """URL of a database on it."""
        return f"mariadb://{user}:{PASSWORD}@127.0.0.1:{self.port}/{database}?{options}"

    async def administer(self, script: str, database: str | None = None) -> list[Sequence[Any]]:
        """Run statements that are divided by ``;`` at ends of lines; rows of the last one."""
        connection = asyncmy.Connection(
            unix_socket=str(self.socket), user="root", db=database, autocommit=True
        )
        await connection.connect()
        try:
            cursor = connection.cursor()
            for statement in script.split(";\n"):
                if statement.strip():
                    await cursor.execute(statement)
            return list(await cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()

    async def provisioned(self, schema: str, tables: Sequence[str]) -> str:
        """Make a database with this in it, of which READER may read these tables; its name."""
        name = f"shop_{next(_numbers)}"
        await self.administer(f"CREATE DATABASE {name}")
        await self.administer(schema, name)
        await self.administer(
            provision_mysql(READER, tables, database=name)
            + f"ALTER USER '{READER}'@'%' IDENTIFIED BY '{PASSWORD}' ACCOUNT UNLOCK"
        )
        return name


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """A server for all tests of the process."""
    with running_mariadb() as server:
        yield server


@pytest.fixture
async def mariadb_shop(mariadb: MariaDb) -> str:
    """Name of a new database with customers, orders and secrets."""
    return await mariadb.provisioned(_SCHEMA, TABLES)


def mariadb_database(url: str, **changes: Any) -> DatabaseSettings:
    return DatabaseSettings(**{"url": url, "allowed_tables": TABLES, "sample_values": 3, **changes})


@contextmanager
def running_mariadb(*options: str) -> Iterator[MariaDb]:
    """An empty server as it installs itself, with its accounts and the database ``test``."""
    with tempfile.TemporaryDirectory(prefix="bos-mariadb-") as name:
        folder = Path(name)
        server = MariaDb(free_port(), folder / "socket")
        user = ["--user=root"] if os.geteuid() == 0 else []
        common = ["--no-defaults", *user, f"--datadir={folder / 'data'}"]
        subprocess.run(
            ["mariadb-install-db", *common, "--auth-root-authentication-method=normal"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *(shutil.which("mariadbd") or "/usr/sbin/mariadbd", *common),
                    *(f"--socket={server.socket}", f"--port={server.port}"),
                    *("--bind-address=127.0.0.1", f"--tmpdir={folder}", "--skip-log-bin"),
                    # By name, an account of localhost without a name would come before READER.
                    *("--skip-name-resolve", "--innodb-buffer-pool-size=32M", *options),
                ],
                stdout=log,
                stderr=log,
            )
        try:
            _wait_for(server, process, folder / "log")
            yield server
        finally:
            process.terminate()
            process.wait(_STOP_TIMEOUT_S)


def _wait_for(server: MariaDb, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when it greets, which it does once it is up."""
    give_up = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < give_up:
        if process.poll() is not None:
            break
        with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_START_TIMEOUT_S)
            probe.connect(str(server.socket))
            if probe.recv(1):
                return
        time.sleep(0.05)
    raise RuntimeError(log.read_text(errors="replace")[-2_000:])
