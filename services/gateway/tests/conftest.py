"""A whole gateway on a fresh database, with a planner and a composer that do as the test says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from gateway_house import House, open_house

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def house(postgres_dsn: str) -> AsyncIterator[House]:
    """Planner, composer and no agents yet."""
    async with open_house(postgres_dsn) as opened:
        yield opened
