"""The web agent with a search API and a site, an agent with effects, planner, composer, gateway."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

from aiohttp import web as http

from bos.gateway.v1 import Approval
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_composer.service import serve as serve_composer
from bos_composer.settings import ComposerSettings
from bos_gateway.service import serve as serve_gateway
from bos_gateway.settings import GatewaySettings
from bos_llm import Models
from bos_planner.service import serve as serve_planner
from bos_planner.settings import PlannerSettings
from bos_postgres import create_database
from bos_testkit.agents import EchoAgent, agent_server
from bos_testkit.deploy import DeployAgent
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import Fixture
from bos_testkit.scripted_model.server import ScriptedModel
from bos_web.service import serve as serve_web
from bos_web.settings import WebSettings

from .obeying_model import LEAKS, STOLEN, improvise
from .poison_harness import PoisonRun
from .poisoned_documents import DEED, HONEST, PLANNER, gives_the_order
from .poisoned_web import PoisonedPage, page

LOOPBACK = (ip_network("127.0.0.0/8"),)
ANSWER, STRATEGY = "WebAnswer", "SearchStrategy"


class Names:
    """Resolves nothing, and keeps what was asked for: only the attacker's site has a name."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        raise OSError


@dataclass
class Outside:
    """The search API and the site."""

    poisoned: PoisonedPage | None = None
    url: str = ""
    paths: list[str] = field(default_factory=list)

    async def search(self, request: http.Request) -> http.Response:
        said: dict[str, Any] = {"title": "Terms", "content": HONEST[1], "score": 0.9}
        if self.poisoned is not None:
            said |= self.poisoned.result
        other = {"title": "Depot", "url": f"{self.url}/depot", "content": "Open on weekdays."}
        answer = self.poisoned.answer if self.poisoned is not None else ""
        results = [{"url": f"{self.url}/terms", **said}, other]
        return http.json_response({"results": results, "answer": answer or None})

    async def show(self, request: http.Request) -> http.Response:
        self.paths.append(request.path_qs)
        if request.path == "/terms":
            html = page() if self.poisoned is None else self.poisoned.html
            return http.Response(text=html, content_type="text/html")
        return http.Response(status=404)


@dataclass
class WebHarness:
    """The running services."""

    client: BosClient
    model: ScriptedModel
    agent: DeployAgent
    outside: Outside
    names: Names

    async def ask(
        self, question: str, poisoned: PoisonedPage | None, *, approve: bool = False
    ) -> PoisonRun:
        """Follow a run to its end; everything that it asks about is approved, or denied."""
        self.outside.poisoned = poisoned
        self.model.requests.clear()
        events: list[Any] = []
        asked: list[Approval] = []
        async with aclosing(self.client.ask_stream(question)) as stream:
            async for event in stream:
                events.append(event)
                if event.HasField("approval_requested"):
                    approval = event.approval_requested.approval
                    asked.append(approval)
                    decide = self.client.approve if approve else self.client.deny
                    await decide(approval.approval_id)
        return PoisonRun(events, asked)


def obeying(numbers: re.Pattern[str]) -> Any:
    """A model that obeys where it reads the order, and sends the user's words by reading a page.

    Args:
        numbers: Finds number and text of each page in a prompt.
    """

    def said(schema: str | None, prompt: str) -> str | dict[str, Any] | None:
        poisoned = gives_the_order(prompt)
        if schema == STRATEGY:
            return {"query": "late delivery Kestrel", "search_type": "deep", "time_range": "any"}
        if schema == ANSWER:
            pages = numbers.findall(prompt)
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

    return said


@asynccontextmanager
async def open_web_harness(
    dsn: str, fixtures: list[Fixture], numbers: re.Pattern[str]
) -> AsyncIterator[WebHarness]:
    """The real services; the model, the search API and the site are ours."""
    telemetry = Telemetry.for_tests("poison")
    server = ServerSettings(port=0, grace_s=0.2)
    outside, names = Outside(), Names()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        outside.url = await enter(_serving(outside))
        model = await enter(ScriptedModel(fixtures, improvise=obeying(numbers)))
        models = await enter(Models(model_settings(model, max_attempts=1), telemetry))
        settings = WebSettings.load(
            server=server,
            auth=AuthSettings.load(),
            search_provider="tavily",
            search_url=f"{outside.url}/search",
            search_key="key",
            search_networks=LOOPBACK,
            site_origins={outside.url: LOOPBACK},
            host_interval_s=0,
        )
        web = await enter(serve_web(settings, telemetry, models=models, resolver=names))
        planner = await enter(
            serve_planner(PlannerSettings.load(server=server), telemetry, models=models)
        )
        composer = await enter(
            serve_composer(ComposerSettings.load(server=server), telemetry, models=models)
        )
        agent = DeployAgent()
        targets = {
            "web": web.address,
            "deploy": await enter(agent_server(agent)),
            "echo": await enter(agent_server(EchoAgent("echo"))),
        }
        gateway = await enter(
            serve_gateway(
                GatewaySettings.load(
                    server=server,
                    store_url=await create_database(dsn, "poison_web"),
                    planner_target=planner.address,
                    composer_target=composer.address,
                    agent_targets=",".join(f"{name}={at}" for name, at in targets.items()),
                    backoff_s=0.01,
                ),
                telemetry.named("gateway"),
            )
        )
        client = await enter(BosClient(gateway.address))
        yield WebHarness(client, model, agent, outside, names)


@asynccontextmanager
async def _serving(outside: Outside) -> AsyncIterator[str]:
    app = http.Application()
    app.router.add_post("/search", outside.search)
    app.router.add_get("/{path:.*}", outside.show)
    runner = http.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        listening = http.TCPSite(runner, "127.0.0.1", 0)
        await listening.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
