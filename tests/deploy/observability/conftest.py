"""Fixtures: one start of the product for all metrics, another one for all traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from .measured_house import MeasuredHouse, measured_house
from .traced_house import TracedHouse, open_traced_house

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MeasuredHouse]:
    """A standalone under demo load, read by a real Prometheus."""
    async with measured_house(tmp_path_factory.mktemp("house")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def traced_house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TracedHouse]:
    """A standalone that was asked the demo questions, and a real collector."""
    async with open_traced_house(tmp_path_factory.mktemp("traced")) as running:
        yield running
