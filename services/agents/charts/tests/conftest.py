from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from bos_charts.render.pool import Renderer
from bos_charts.service import serve
from bos_charts.settings import ChartsSettings
from bos_testkit.fixtures.agent_harness import AgentHarness, StartAgent
from bos_testkit.scripted_model.replies import Fixture


@pytest_asyncio.fixture(loop_scope="module")
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def renderer() -> AsyncIterator[Renderer]:
    """One for all tests of a module, because the start of its process takes a second."""
    async with Renderer(workers=1, timeout_s=60) as renderer:
        yield renderer


@pytest.fixture
def start(start_agent: StartAgent) -> Any:
    async def start(*replies: Fixture, **settings: Any) -> AgentHarness:
        changes = {"models": bool(replies), "render_timeout_s": 60.0, **settings}
        agent: AgentHarness = await start_agent(
            "charts", serve, ChartsSettings, *replies, **changes
        )
        return agent

    return start


@pytest_asyncio.fixture(loop_scope="module")
async def charts(start: Any) -> Any:
    return await start()
