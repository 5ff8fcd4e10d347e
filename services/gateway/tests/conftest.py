"""A whole gateway on a fresh database, with a planner and a composer that do as the test says."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from gateway_harness.admission import writers
from gateway_harness.crash.harness import CrashHarness, open_crash_harness
from gateway_harness.harness import Harness, open_harness

from bos_gateway.run_log.session import SCHEMA
from bos_gateway.run_log.writer import LogWriter
from bos_gateway.service import migrate_store
from bos_postgres import open_database
from bos_testkit.postgres import PostgresServer, migrated_template


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The run log's tables, which gateways find up to date."""
    return migrated_template(postgres_server, "gateway_template", migrate_store)


@pytest.fixture
async def harness(postgres_dsn: str) -> AsyncIterator[Harness]:
    """Planner, composer and no agents yet."""
    async with open_harness(postgres_dsn) as opened:
        yield opened


@pytest.fixture
async def crash(postgres_dsn: str) -> AsyncIterator[CrashHarness]:
    """What gateways that are ended need around them."""
    async with open_crash_harness(postgres_dsn, takes_s=0.02) as opened:
        yield opened


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """Services that a test may end by closing it."""
    async with AsyncExitStack() as opened:
        yield opened


@pytest.fixture
def store(postgres_dsn: str) -> str:
    """URL of a database with the gateways' schema."""
    return postgres_dsn


@pytest.fixture
async def log(store: str) -> AsyncIterator[LogWriter]:
    """The writer of one replica."""
    async with writers(store, 1) as (opened,):
        yield opened


@pytest.fixture
async def pool(postgres_dsn: str) -> AsyncIterator[Any]:
    """Connections to the gateways' schema."""
    async with open_database(postgres_dsn, schema=SCHEMA, max_size=8) as opened:
        yield opened
