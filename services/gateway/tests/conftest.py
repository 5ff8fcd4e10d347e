"""A whole gateway on a fresh database, with a planner and a composer that do as the test says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from crash_house import CrashHouse, open_crash_house
from gateway_house import House, open_house

from bos_gateway.service import migrate_store
from bos_testkit.postgres import migrated_template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_testkit.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The run log's tables, which gateways find up to date."""
    return migrated_template(postgres_server, "gateway_template", migrate_store)


@pytest.fixture
async def house(postgres_dsn: str) -> AsyncIterator[House]:
    """Planner, composer and no agents yet."""
    async with open_house(postgres_dsn) as opened:
        yield opened


@pytest.fixture
async def crash(postgres_dsn: str) -> AsyncIterator[CrashHouse]:
    """What gateways that are ended need around them."""
    async with open_crash_house(postgres_dsn, takes_s=0.02) as opened:
        yield opened
