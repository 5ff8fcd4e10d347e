"""Fixtures of these tests: one start of the product for all that look at its metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from .measured_house import MeasuredHouse, measured_house

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MeasuredHouse]:
    """A standalone under demo load, read by a real Prometheus."""
    async with measured_house(tmp_path_factory.mktemp("house")) as running:
        yield running
