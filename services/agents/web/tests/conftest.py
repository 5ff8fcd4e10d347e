from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from bos_testkit.fixtures.agent_harness import StartAgent
from bos_web.service import serve
from bos_web.settings import WebSettings

from .web_servers import LOOPBACK, SearchApi, Site, serving_site


@pytest.fixture
async def site(stack: AsyncExitStack) -> Site:
    return await stack.enter_async_context(serving_site(Site()))


@pytest.fixture
async def api(stack: AsyncExitStack) -> SearchApi:
    found = SearchApi()
    served = Site(pages={"/search": found.respond, "/customsearch/v1": found.respond})
    found.url = (await stack.enter_async_context(serving_site(served))).url
    return found


@pytest.fixture
def start(start_agent: StartAgent, site: Site, api: SearchApi) -> Any:
    settings = {
        "search_provider": "tavily",
        "search_url": f"{api.url}/search",
        "search_key": "key-of-tests",
        "search_networks": LOOPBACK,
        "site_origins": {site.url: LOOPBACK},
        "host_interval_s": 0,
    }
    return partial(start_agent, "web", serve, WebSettings, **settings)


@pytest.fixture
async def web(start: Any) -> Any:
    return await start(models=False)
