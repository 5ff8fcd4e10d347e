from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from bos_charts.service import serve
from bos_charts.settings import ChartsSettings
from bos_testkit.fixtures.agent_harness import AgentHarness, StartAgent
from bos_testkit.scripted_model.replies import Fixture


@pytest_asyncio.fixture(loop_scope="module")
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


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
