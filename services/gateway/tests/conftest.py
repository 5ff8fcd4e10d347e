"""A whole gateway on a fresh database, with a planner and a composer that do as the test says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from crash_house import CrashHouse, open_crash_house
from gateway_house import House, open_house

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


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
