"""Fixtures: one PostgreSQL server per test session, one fresh database per test.

They come with the testkit's pytest plugin. Under pytest-xdist each worker has a server of its
own. Where a container engine answers within a second and already
holds ``postgres:18`` (``docker pull postgres:18``), the server is a container; otherwise it is the
embedded one. Nothing is ever pulled by a test.
"""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import shutil
import tempfile
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

import pytest

from bos_postgres import (
    EmbeddedPostgres,
    connect,
    create_database,
    drop_database,
    with_database,
)

IMAGE: Final = "postgres:18"
_ENGINE_TIMEOUT_S: Final = 1
_SCRAM_ITERATIONS: Final = 1000  # the driver of dbmate refuses fewer
_ENGINE_SOCKET: Final = Path("/var/run/docker.sock")
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
_MEMORY_BYTES: Final = 6 * 1024**3
"""Free there: for the servers of all workers, each with half a gigabyte of log at most."""


class PostgresServer(Protocol):
    """A running server on which tests may create databases."""

    def dsn(self, database: str = "postgres") -> str:
        """URL of a database, with an administrator's rights."""


class ContainerServer:
    """A server in a container, seen as any other."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def dsn(self, database: str = "postgres") -> str:
        """URL of a database, with an administrator's rights."""
        return with_database(self._dsn, database)


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The PostgreSQL server of this test session."""
    with ExitStack() as stack:
        if engine_holds(IMAGE):
            server = stack.enter_context(container_server())
        else:
            folder = stack.enter_context(memory_folder()) or tmp_path_factory.mktemp("postgres")
            server = stack.enter_context(embedded_server(folder))
        asyncio.run(_cheapen_passwords(server.dsn()))
        yield server


@pytest.fixture(scope="session")
def postgres_template() -> str | None:
    """What the databases of tests are copies of; None is an empty one.

    A ``conftest.py`` whose tests all need the tables of one service overrides this with
    :func:`migrated_template`.
    """
    return None


@pytest.fixture
async def postgres_dsn(
    postgres_server: PostgresServer, postgres_template: str | None
) -> AsyncIterator[str]:
    """URL of a database that only this test uses, empty or a copy; dropped afterwards."""
    name = f"test_{secrets.token_hex(8)}"
    yield await copy_database(postgres_server, postgres_template or "template1", name)
    await drop_database(postgres_server.dsn(), name)


@pytest.fixture
async def empty_postgres_dsn(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """URL of a database without tables that only this test uses; never a copy of the template."""
    name = f"test_{secrets.token_hex(8)}"
    yield await copy_database(postgres_server, "template1", name)
    await drop_database(postgres_server.dsn(), name)


def migrated_template(
    server: PostgresServer, name: str, migrate: Callable[[str], Awaitable[None]]
) -> str:
    """A database in which ``migrate`` has made the tables, to be copied for each test."""

    async def make() -> None:
        await migrate(await create_database(server.dsn(), name))

    asyncio.run(make())
    return name


async def copy_database(server: PostgresServer, template: str, name: str) -> str:
    """Make a copy of the template, which must have no connections; returns its URL."""
    async with connect(server.dsn()) as session:
        folder = await session.fetchval("SHOW data_directory")
        # Copying files begins and ends with a checkpoint, which is cheap in memory alone.
        strategy = "FILE_COPY" if Path(folder).is_relative_to(_MEMORY) else "WAL_LOG"
        await session.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY {strategy}')
    return server.dsn(name)


async def _cheapen_passwords(dsn: str) -> None:
    """Let connections cost little: each proves a password, by thousands of rounds otherwise."""
    password = unquote(urlsplit(dsn).password or "").replace("'", "''")
    async with connect(dsn) as session:
        await session.execute(f"ALTER SYSTEM SET scram_iterations = {_SCRAM_ITERATIONS}")
        await session.execute("SELECT pg_reload_conf()")
        await session.execute(f"SET scram_iterations = {_SCRAM_ITERATIONS}")
        await session.execute(f"ALTER ROLE CURRENT_USER PASSWORD '{password}'")


@contextmanager
def memory_folder() -> Iterator[Path | None]:
    """A folder in memory, removed afterwards; None where there is little of it.

    Databases of tests are made and dropped by the thousand: copying their files takes a fifth of
    the time there.
    """
    try:
        free = shutil.disk_usage(_MEMORY).free
    except OSError:
        free = 0
    if free < _MEMORY_BYTES:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="bos-tests-", dir=_MEMORY) as folder:
        yield Path(folder)


@contextmanager
def embedded_server(folder: Path) -> Iterator[PostgresServer]:
    """The embedded server without fsync; its folder, wherever the data went, is removed."""
    server = EmbeddedPostgres(folder, durable=False)
    try:
        with server:
            yield server
    finally:
        server.delete_data()


@contextmanager
def container_server() -> Iterator[PostgresServer]:
    """A throw-away container; needs an engine that holds :data:`IMAGE`."""
    from testcontainers.community.postgres import PostgresContainer
    from testcontainers.core.config import ConnectionMode, testcontainers_config

    # The reaper is one more image to pull and needs the engine's socket; leaving the block removes
    # the container. Published ports work whether or not the tests run in a container themselves.
    testcontainers_config.ryuk_disabled = True
    testcontainers_config.connection_mode_override = ConnectionMode.docker_host
    testcontainers_config.tc_host_override = testcontainers_config.tc_host_override or "127.0.0.1"
    with PostgresContainer(IMAGE, driver=None) as container:
        yield ContainerServer(container.get_connection_url())


def engine_holds(image: str) -> bool:
    """Whether a container engine answers within a second and has the image already."""
    if "DOCKER_HOST" not in os.environ and not _ENGINE_SOCKET.exists():
        return False  # where no engine can listen, half a second of imports is not spent
    # Imported here and above only: most test sessions need not spend it either.
    import docker  # type: ignore[import-untyped]
    import requests

    # The client forgets its socket where no engine listens; collected here, it disturbs no test.
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        try:
            client = docker.from_env(timeout=_ENGINE_TIMEOUT_S)
        except docker.errors.DockerException:
            client = None
        gc.collect()
    if client is None:
        return False
    try:
        client.images.get(image)
    except (docker.errors.DockerException, requests.RequestException):
        return False
    finally:
        client.close()
    return True
