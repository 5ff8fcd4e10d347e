"""The agent contract, kept by the web agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentInput
from bos_chassis.telemetry import Telemetry
from bos_llm import Models
from bos_testkit.agent_contract import Process, Rule, Subject, every_rule, serving
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel
from bos_web.service import serve
from bos_web.settings import WebSettings

from .conftest import LOOPBACK, SearchApi, Site, serving_site, tavily

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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
    telemetry = Telemetry.for_tests("web")
    found = {"title": "Castings", "url": "https://news.example.org/castings", "score": 0.9}
    api = SearchApi(tavily({**found, "content": "Castings rose by 4.2 percent in May."}))
    async with (
        serving_site(Site(pages={"/search": api.respond})) as site,
        ScriptedModel(REPLIES) as model,
        Models(model_settings(model, max_attempts=1), telemetry) as models,
    ):
        url = f"{site.url}/search"
        yield Subject(
            name="web",
            example=AgentInput(task=TASK),
            model=model,
            serve=serving(
                serve,
                WebSettings,
                telemetry,
                models,
                search_provider="tavily",
                search_url=url,
                search_key="key-of-tests",
                search_networks=LOOPBACK,
            ),
            telemetry=telemetry,
            process=Process(
                "bos_web",
                {
                    "BOS_WEB_SEARCH_PROVIDER": "tavily",
                    "BOS_WEB_SEARCH_URL": url,
                    "BOS_WEB_SEARCH_KEY": "key-of-tests",
                    "BOS_WEB_SEARCH_NETWORKS": '["127.0.0.0/8"]',
                },
            ),
        )


@pytest.mark.requirement("H-07")
@every_rule
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
