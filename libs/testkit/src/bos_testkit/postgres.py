"""Fixtures: one PostgreSQL server per test session, one fresh database per test.

They come with the testkit's pytest plugin. Under pytest-xdist each worker has a server of its
own. Where a container engine answers within a second and already
holds ``postgres:18`` (``docker pull postgres:18``), the server is a container; otherwise it is the
embedded one. Nothing is ever pulled by a test.
"""

from __future__ import annotations

import gc
import secrets
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

import pytest

from bos_postgres import EmbeddedPostgres, create_database, drop_database, with_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

IMAGE: Final = "postgres:18"
_ENGINE_TIMEOUT_S: Final = 1


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
    if engine_holds(IMAGE):
        with container_server() as server:
            yield server
    else:
        with embedded_server(tmp_path_factory.mktemp("postgres")) as server:
            yield server


@pytest.fixture
async def postgres_dsn(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """URL of an empty database that only this test uses; dropped afterwards."""
    name = f"test_{secrets.token_hex(8)}"
    yield await create_database(postgres_server.dsn(), name)
    await drop_database(postgres_server.dsn(), name)


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
    # Imported here and above only: a quarter of a second that most test sessions need not spend.
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
