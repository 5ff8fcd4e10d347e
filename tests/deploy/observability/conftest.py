"""Fixtures: one start of the product for all metrics, another one for all traces."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from .measured_harness import MeasuredHarness, measured_harness
from .traced_harness import TracedHarness, open_traced_harness


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MeasuredHarness]:
    """A standalone under demo load, read by a real Prometheus."""
    async with measured_harness(tmp_path_factory.mktemp("harness")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def traced_harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TracedHarness]:
    """A standalone that was asked the demo questions, and a real collector."""
    async with open_traced_harness(tmp_path_factory.mktemp("traced")) as running:
        yield running
