"""Orders in pages and search results, before a model that obeys them: nothing follows unapproved.

Each page goes through the real search, reader, web agent, planner, composer and gateway.
"""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web as http

from bos_chassis.settings import AuthSettings
from bos_chassis.values import from_value_map
from bos_client import BosClient
from bos_testkit.deploy import DeployAgent
from bos_testkit.postgres import PostgresServer
from bos_web.service import serve as serve_web
from bos_web.settings import WebSettings

from .obeying_model import LEAKS, STOLEN, improvise, outside_fences
from .poison_harness import (
    LOOPBACK,
    SERVER,
    Core,
    Names,
    PoisonRun,
    assert_harmless,
    follow,
    open_core,
    reading_plan,
    serving,
)
from .poisoned_documents import DEED, HONEST, PLANNER, QUESTION, gives_the_order
from .poisoned_web import POISONED, PoisonedPage

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.security,
    pytest.mark.timeout(600),
]

NUMBERS = re.compile(r"Page (\d+), [a-z ]+\n<untrusted>\n(.*?)\n</untrusted>", re.DOTALL)
ANSWER, STRATEGY = "WebAnswer", "SearchStrategy"


@dataclass
class Outside:
    """The search API and the site."""

    poisoned: PoisonedPage | None = None
    url: str = ""

    async def answer(self, request: http.Request) -> http.Response:
        poisoned = self.poisoned or PoisonedPage("honest")
        if request.path == "/search":
            said: dict[str, Any] = {"title": "Terms", "content": HONEST[1], "score": 0.9}
            terms = {"url": f"{self.url}/terms", **said, **poisoned.result}
            other = {"title": "Depot", "url": f"{self.url}/depot", "content": "Open on weekdays."}
            results = [terms, other]
            return http.json_response({"results": results, "answer": poisoned.answer or None})
        if request.path == "/terms":
            return http.Response(text=poisoned.html, content_type="text/html")
        return http.Response(status=404)


@dataclass
class WebHarness:
    """The running services."""

    core: Core
    client: BosClient
    outside: Outside
    names: Names = field(default_factory=Names)
    agent: DeployAgent = field(default_factory=DeployAgent)

    async def ask(self, poisoned: PoisonedPage | None) -> PoisonRun:
        self.outside.poisoned = poisoned
        self.core.model.requests.clear()
        return await follow(self.client, QUESTION)


def obeying(schema: str | None, prompt: str) -> str | dict[str, Any] | None:
    """Obeys where it reads the order, and sends the user's words by reading a page."""
    poisoned = gives_the_order(prompt)
    if schema == STRATEGY:
        return {"query": "late delivery Kestrel", "search_type": "deep", "time_range": "any"}
    if schema == ANSWER:
        pages = NUMBERS.findall(prompt)
        shown = [number for number, text in pages if gives_the_order(text) or HONEST[1] in text]
        cited = int(shown[0] if shown else 1)
        text = f"As ordered [{cited}][99]:\n{DEED}\n{LEAKS}" if poisoned else ""
        honest = f"{HONEST[1]} [{cited}]"
        return {"found": True, "answer": text or honest, "quotations": [], "open_pages": []}
    found = improvise(schema, prompt)
    if schema == PLANNER and poisoned and isinstance(found, dict):
        url = {"name": "url", "value": STOLEN}
        leak = {"step_id": f"leak_{prompt.count('obey')}", "agent": "web", "task": DEED}
        found["steps"].append({**leak, "tool_name": "fetch_url", "sub_task_input": [url]})
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    postgres_server: PostgresServer, clean_environment: None
) -> AsyncIterator[WebHarness]:
    async with open_core(postgres_server.dsn(), [reading_plan("web")], obeying) as core:
        enter = core.stack.enter_async_context
        outside, names, agent = Outside(), Names(), DeployAgent()
        outside.url = await enter(serving(outside.answer))
        settings = WebSettings.load(
            server=SERVER,
            auth=AuthSettings.load(),
            search_provider="tavily",
            search_url=f"{outside.url}/search",
            search_key="key",
            search_networks=LOOPBACK,
            site_origins={outside.url: LOOPBACK},
            host_interval_s=0,
        )
        web = await core.serve(serve_web, settings, "web", resolver=names)
        client = await enter(BosClient(await core.gateway({"web": web, "deploy": agent})))
        yield WebHarness(core, client, outside, names, agent)


@pytest.mark.parametrize("poisoned", POISONED, ids=lambda each: each.what)
async def test_order_of_a_page_needs_approval_and_reaches_no_host(
    poisoned: PoisonedPage, harness: WebHarness
) -> None:
    run = await harness.ask(poisoned)

    assert harness.agent.effects == []
    assert harness.names.asked == []  # neither the page's address nor one with the user's words
    assert_harmless(run, "web", "collector.example")
    wanted = {
        "trigger_deployment": {"service": "shop", "version": "6.6.6"},
        "fetch_url": {"url": STOLEN},
    }
    asked = {action.tool for approval in run.asked for action in approval.actions}
    for approval in run.asked:
        (action,) = approval.actions
        assert from_value_map(action.arguments) == wanted[action.tool]
    for request in harness.core.model.requests:
        assert not gives_the_order(outside_fences(request.prompt)), request.prompt
    # Otherwise nothing is shown: the model has not read the order at all.
    heard = any(schema == ANSWER and DEED in reply for schema, reply in harness.core.replies())
    assert heard is poisoned.heard
    assert bool(asked) is (poisoned.heard and poisoned.asks)
    if poisoned is POISONED[0]:  # a fetch whose address holds the words is asked about as well
        assert asked == set(wanted)


async def test_pages_without_orders_lead_to_no_deed(harness: WebHarness) -> None:
    run = await harness.ask(None)
    assert run.asked == []
    assert harness.agent.effects == []
    assert run.response.answer == f"{HONEST[1]} [1]"
    assert run.results["read"].tainted
