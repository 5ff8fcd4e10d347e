from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import grpc
import pytest
import pytest_asyncio

from bos.agent.v1 import (
    AgentInput,
    AgentResult,
    AgentServiceStub,
    ApprovalContext,
    DescribeRequest,
    ExecuteRequest,
    TaskMetadata,
)
from bos.common.v1 import TraceEventType
from bos_api_docs.service import serve
from bos_api_docs.settings import ApiDocsSettings
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value, from_value_map, table_rows, to_value, to_value_map
from bos_http import HttpPolicy
from bos_llm import Models
from bos_testkit.asgi_server import asgi_server
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .api_under_test import ApiUnderTest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bos.agent.v1 import AgentCard, ProposedAction
    from bos.common.v1 import TraceEvent
    from bos_testkit.scripted_model.replies import Fixture

LOOPBACK = (IPv4Network("127.0.0.1/32"),)
BOTH = ("call_api_read", "call_api_write")


def planned(task: str, method: str = "GET", path: str = "/orders", **more: Any) -> Fixture:
    """The model plans this call for ``task``."""
    plan = {"make_request": True, "method": method, "path": path, "reason": "It fits.", **more}
    return fixture(f"plan of {task}", [f"### Task\n{task}"], schema="ApiCallPlan", json=plan)


def worded(task: str, answer: str) -> Fixture:
    """The model words the response for ``task``."""
    texts = [f"### Task\n{task}\n\n### Call"]
    return fixture(f"words of {task}", texts, schema="ApiSummary", json={"answer": answer})


@dataclass
class Outcome:
    """Outcome of one step."""

    result: AgentResult
    trace: list[TraceEvent] = field(default_factory=list)

    @property
    def data(self) -> dict[str, Any]:
        return from_value_map(self.result.data)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return table_rows(self.result.table)

    @property
    def action(self) -> ProposedAction:
        (action,) = self.result.proposed_actions
        return action

    @property
    def shown(self) -> dict[str, Any]:
        """Arguments of the proposed action."""
        return from_value_map(self.action.arguments)

    def events(self, kind: str) -> list[tuple[str, dict[str, Any]]]:
        wanted = TraceEventType.Value(f"TRACE_EVENT_TYPE_{kind}")
        return [
            (event.message, {name: from_value(event.data[name]) for name in event.data})
            for event in self.trace
            if event.type == wanted
        ]

    def messages(self, kind: str = "MESSAGE") -> list[str]:
        return [message for message, _ in self.events(kind)]


@dataclass
class Agent:
    """A running API agent."""

    stub: Any
    model: ScriptedModel
    telemetry: Telemetry

    async def card(self) -> AgentCard:
        return (await self.stub.Describe(DescribeRequest(), timeout=10)).card

    async def do(
        self,
        task: str,
        *,
        context: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Mapping[str, Any]] | None = None,
        approved: ProposedAction | None = None,
        tools: tuple[str, ...] = BOTH,
        **more: Any,
    ) -> Outcome:
        request = AgentInput(
            agent_id="step_1",
            agent_name="api_docs",
            task=task,
            tools=tools,
            metadata=TaskMetadata(user_id="asha", run_id="run-1", step_key="run-1/0/step_1"),
            sub_task_input={name: to_value(value) for name, value in (inputs or {}).items()},
            dependency_outputs={k: to_value_map(v) for k, v in (outputs or {}).items()},
            **more,
        )
        request.context.update(dict(context or {}))
        if approved is not None:
            request.approval_context.CopyFrom(
                ApprovalContext(approval_id="a1", approved_actions=[approved])
            )
        outcome = Outcome(AgentResult())
        async for message in self.stub.Execute(ExecuteRequest(input=request), timeout=60):
            if message.WhichOneof("payload") == "result":
                outcome.result = message.result
            else:
                outcome.trace.extend(message.trace.events)
        return outcome

    @property
    def prompt(self) -> str:
        return self.model.requests[0].prompt


def policy(*urls: str, **changes: Any) -> HttpPolicy:
    """A policy that allows these origins on loopback."""
    origins = {"{0.scheme}://{0.netloc}".format(urlsplit(url)): LOOPBACK for url in urls}
    return HttpPolicy.load(internal_origins=origins, **changes)


@pytest_asyncio.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def serve_api(stack: AsyncExitStack) -> Any:
    """Serve another API on loopback."""

    async def start() -> ApiUnderTest:
        api = ApiUnderTest()
        api.base_url = await stack.enter_async_context(asgi_server(api.application()))
        return api

    return start


@pytest_asyncio.fixture
async def api(serve_api: Any) -> ApiUnderTest:
    """The API under test."""
    started: ApiUnderTest = await serve_api()
    return started


@pytest.fixture
def start(stack: AsyncExitStack, api: ApiUnderTest) -> Any:
    """Start the agent with the API under test, and replies of the model."""

    async def start(
        *fixtures: Fixture,
        own: Mapping[str, Any] | None = None,
        allowed: tuple[str, ...] = (),
        models: bool = True,
        **settings: Any,
    ) -> Agent:
        telemetry = Telemetry.for_tests("api_docs")
        scripted = await stack.enter_async_context(ScriptedModel(fixtures))
        access = model_settings(scripted, max_attempts=1)
        described = {"openapi": f"{api.base_url}/openapi.json", "base_url": api.base_url}
        loaded = ApiDocsSettings.load(
            **{
                "server": ServerSettings(reflection=False, grace_s=1),
                "auth": AuthSettings.load(),
                "http": policy(api.base_url, *allowed),
                "apis": {"orders": {**described, **(own or {})}},
                "reload_s": 0,
                **settings,
            }
        )
        shared = await stack.enter_async_context(Models(access, telemetry)) if models else None
        server = await stack.enter_async_context(serve(loaded, telemetry, models=shared))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
        api.seen.clear()
        return Agent(AgentServiceStub(channel), scripted, telemetry)

    return start
