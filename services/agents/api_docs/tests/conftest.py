from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bos_api_docs.service import serve
from bos_api_docs.settings import ApiDocsSettings
from bos_testkit.asgi_server import asgi_server
from bos_testkit.fixtures.agent_harness import AgentHarness, StartAgent
from bos_testkit.scripted_model.replies import Fixture

from .api_under_test import STEP, ApiUnderTest, policy


@pytest.fixture
def serve_api(stack: AsyncExitStack) -> Any:
    async def start() -> ApiUnderTest:
        api = ApiUnderTest()
        api.base_url = await stack.enter_async_context(asgi_server(api.application()))
        return api

    return start


@pytest.fixture
async def api(serve_api: Any) -> Any:
    return await serve_api()


@pytest.fixture
def start(start_agent: StartAgent, api: ApiUnderTest) -> Any:
    """Start the agent with the API under test; ``own`` changes its entry in the settings."""

    async def start(
        *replies: Fixture,
        own: Mapping[str, Any] | None = None,
        allowed: tuple[str, ...] = (),
        **settings: Any,
    ) -> AgentHarness:
        described = {"openapi": f"{api.base_url}/openapi.json", "base_url": api.base_url}
        changes = {
            "http": policy(api.base_url, *allowed),
            "apis": {"orders": {**described, **(own or {})}},
            "reload_s": 0,
            **settings,
        }
        agent: AgentHarness = await start_agent(
            "api_docs", serve, ApiDocsSettings, *replies, step=STEP, **changes
        )
        api.seen.clear()
        return agent

    return start
