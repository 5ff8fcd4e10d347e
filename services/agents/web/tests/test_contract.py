"""The agent contract, kept by the web agent."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentInput
from bos_testkit.agent_contract import Rule, Subject, agent_subject, own_rules
from bos_testkit.scripted_model.replies import fixture
from bos_web.service import serve
from bos_web.settings import WebSettings

from .web_servers import LOOPBACK, SearchApi, Site, serving_site, tavily

pytestmark = pytest.mark.asyncio(loop_scope="module")

TASK = "How much did castings rise in May?"
REPLIES = (
    fixture(
        "strategy",
        [TASK],
        schema="SearchStrategy",
        json={"query": "castings price May", "search_type": "basic", "time_range": "any"},
    ),
    fixture(
        "answer",
        [TASK],
        schema="WebAnswer",
        json={"found": True, "answer": "By 4.2 percent [1].", "quotations": [], "open_pages": []},
    ),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subject() -> AsyncIterator[Subject]:
    found = {"title": "Castings", "url": "https://news.example.org/castings", "score": 0.9}
    api = SearchApi(tavily({**found, "content": "Castings rose by 4.2 percent in May."}))
    async with serving_site(Site(pages={"/search": api.respond})) as site:
        search = {
            "search_provider": "tavily",
            "search_url": f"{site.url}/search",
            "search_key": "key-of-tests",
        }
        environment = {f"BOS_WEB_{name.upper()}": value for name, value in search.items()}
        async with agent_subject(
            *("web", serve, WebSettings, REPLIES, AgentInput(task=TASK)),
            search_networks=LOOPBACK,
            environment={**environment, "BOS_WEB_SEARCH_NETWORKS": '["127.0.0.0/8"]'},
            **search,
        ) as subject:
            yield subject


@pytest.mark.requirement("H-07")
@own_rules
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
