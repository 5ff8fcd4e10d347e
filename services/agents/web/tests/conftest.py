"""The web agent as a service before a search API, sites and a scripted model, all on loopback."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from aiohttp import web

from bos.agent.v1 import AgentInput, AgentResult, AgentServiceStub, ExecuteRequest
from bos.common.v1 import TraceEventType
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map, to_value
from bos_llm import Models
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel
from bos_web.service import serve
from bos_web.settings import WebSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from bos.common.v1 import TraceEvent
    from bos_testkit.scripted_model.replies import Fixture

LOOPBACK = (ip_network("127.0.0.0/8"),)
Answer = web.StreamResponse | str | bytes


def html(body: str, title: str = "A page") -> str:
    """A page with the usual things around its text."""
    return (
        f"<html><head><title>{title}</title><script>var tracked = 1</script></head><body>"
        "<nav><a href='/'>Home</a> <a href='/login'>Sign in</a></nav>"
        f"<main><article><h1>{title}</h1>{body}</article></main>"
        "<footer>All rights reserved. Subscribe to our newsletter.</footer></body></html>"
    )


@dataclass
class Site:
    """A site whose pages are what tests put there; counts requests by path."""

    url: str = ""
    pages: dict[str, Answer | Callable[[web.Request], Any]] = field(default_factory=dict)
    asked: list[web.Request] = field(default_factory=list)

    @property
    def paths(self) -> Counter[str]:
        return Counter(request.path for request in self.asked)

    def add(self, path: str, answer: Answer | Callable[[web.Request], Any]) -> str:
        """Put a page there; its address."""
        self.pages[path] = answer
        return self.url + path

    async def respond(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        answer = self.pages.get(request.path)
        if callable(answer):
            answer = answer(request)
            if hasattr(answer, "__await__"):
                answer = await answer
        if answer is None:
            return web.Response(status=404)
        if isinstance(answer, str):
            return web.Response(text=answer, content_type="text/html")
        if isinstance(answer, bytes):
            return web.Response(body=answer, content_type="text/html")
        return answer


@asynccontextmanager
async def serving_site(site: Site) -> AsyncIterator[Site]:
    """The site on a port of loopback."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", site.respond)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        listening = web.TCPSite(runner, "127.0.0.1", 0)
        await listening.start()
        host, port = runner.addresses[0][:2]
        site.url = f"http://{host}:{port}"
        yield site
    finally:
        await runner.cleanup()


@dataclass
class SearchApi:
    """A search API of any provider's shape: replies what tests set, records what it is asked."""

    reply: Any = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    then: tuple[int, Any] | None = None
    """Status and reply from the second request on."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    async def respond(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        seen = {"method": request.method, "query": dict(request.query), "body": body}
        self.requests.append({**seen, "headers": dict(request.headers), "path": request.path})
        status, reply = self.status, self.reply
        if self.then is not None and len(self.requests) > 1:
            status, reply = self.then
        if self.raw is not None:
            return web.Response(body=self.raw, status=status, headers=self.headers)
        return web.json_response(reply, status=status, headers=self.headers)


@dataclass
class Outcome:
    """What one step gave."""

    result: AgentResult
    trace: list[TraceEvent] = field(default_factory=list)

    @property
    def data(self) -> dict[str, Any]:
        return from_value_map(self.result.data)

    def messages(self, kind: str) -> list[str]:
        wanted = TraceEventType.Value(f"TRACE_EVENT_TYPE_{kind}")
        return [event.message for event in self.trace if event.type == wanted]


@dataclass
class Web:
    """A real agent service."""

    stub: Any
    model: ScriptedModel

    async def do(self, task: str, inputs: Mapping[str, Any] | None = None, **more: Any) -> Outcome:
        request = AgentInput(
            agent_id="step_1",
            agent_name="web",
            task=task,
            sub_task_input={name: to_value(value) for name, value in (inputs or {}).items()},
            **more,
        )
        outcome = Outcome(AgentResult())
        async for message in self.stub.Execute(ExecuteRequest(input=request), timeout=60):
            if message.HasField("result"):
                outcome.result = message.result
            outcome.trace.extend(message.trace.events)
        return outcome

    def prompts(self, schema: str) -> list[str]:
        return [request.prompt for request in self.model.requests if request.schema == schema]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def site(stack: AsyncExitStack) -> Site:
    return await stack.enter_async_context(serving_site(Site()))


@pytest.fixture
async def api(stack: AsyncExitStack) -> SearchApi:
    found = SearchApi()
    served = Site(pages={"/search": found.respond, "/customsearch/v1": found.respond})
    found.url = (await stack.enter_async_context(serving_site(served))).url
    return found


def tavily(*results: Mapping[str, Any], answer: str = "") -> dict[str, Any]:
    """A reply of Tavily's shape."""
    said = {"query": "q", "images": [], "results": list(results), "response_time": 0.1}
    return {**said, "answer": answer} if answer else said


@pytest.fixture
def start(stack: AsyncExitStack, site: Site, api: SearchApi) -> Any:
    """Starts the agent with these fixtures of the scripted model."""

    async def start(*fixtures: Fixture, models: bool = True, **settings: Any) -> Web:
        telemetry = Telemetry.for_tests("web")
        scripted = await stack.enter_async_context(ScriptedModel(fixtures))
        access = model_settings(scripted, max_attempts=1)
        given: dict[str, Any] = {
            "search_provider": "tavily",
            "search_url": f"{api.url}/search",
            "search_key": "key-of-tests",
            "search_networks": LOOPBACK,
            "site_origins": {site.url: LOOPBACK},
            "host_interval_s": 0,
            **settings,
        }
        loaded = WebSettings.load(
            server=ServerSettings(reflection=False, grace_s=1), auth=AuthSettings.load(), **given
        )
        shared = await stack.enter_async_context(Models(access, telemetry)) if models else None
        server = await stack.enter_async_context(serve(loaded, telemetry, models=shared))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
        return Web(AgentServiceStub(channel), scripted)

    return start
