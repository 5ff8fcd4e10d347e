from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from bos_charts.service import serve
from bos_charts.settings import ChartsSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_testkit.fixtures.agent_harness import AgentHarness, StartAgent
    from bos_testkit.scripted_model.replies import Fixture


@pytest_asyncio.fixture(loop_scope="module")
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def start(start_agent: StartAgent) -> Any:
    """Start the agent, without a model if it has no replies."""

    async def start(*replies: Fixture, **settings: Any) -> AgentHarness:
        changes = {"models": bool(replies), "render_timeout_s": 60.0, **settings}
        agent: AgentHarness = await start_agent(
            "charts", serve, ChartsSettings, *replies, **changes
        )
        return agent

    return start
