"""The real services around one scripted model, and what tests say to it and ask of it.

The same ``serve`` functions as in production, every service on a port of its own. Beyond what
``bos serve all`` starts, a harness takes agents that misbehave, replies that mislead, and services
that stop in the middle.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from bos.common.v1 import Table, TraceEventType
from bos_agentkit import Agent
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value
from bos_client import BosClient
from bos_composer.service import serve as serve_composer
from bos_composer.settings import ComposerSettings
from bos_computation.service import serve as serve_computation
from bos_computation.settings import ComputationSettings
from bos_demo.company import DEFAULT_TODAY
from bos_demo.scripted.dialogue import dialogue_fixtures
from bos_demo.scripted.replies import demo_fixtures
from bos_gateway.service import serve as serve_gateway
from bos_gateway.settings import GatewaySettings
from bos_llm import Models
from bos_mcp_db.service import serve as serve_mcp_db
from bos_mcp_db.settings import DatabaseSettings, McpDbSettings
from bos_planner.service import serve as serve_planner
from bos_planner.settings import PlannerSettings
from bos_sandbox.service import serve as serve_sandbox
from bos_sandbox.settings import SandboxSettings
from bos_sql.service import serve as serve_sql
from bos_sql.settings import SqlSettings
from bos_testkit.agents import agent_server
from bos_testkit.runs import SeenRun
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import Fixture, fixture
from bos_testkit.scripted_model.server import ScriptedModel

TODAY = {"current_date": DEFAULT_TODAY.isoformat()}
_LONGEST_RUN_S = 20.0
# What only a defect would show: tracebacks, names of libraries, addresses, the words of endpoints.
_INTERNALS = (
    "Traceback",
    "Exception(",
    "Error(",
    " object at 0x",
    "127.0.0.1",
    "asyncpg",
    "openai.",
    "aiohttp",
    "pydantic",
    "grpc.",
    "StatusCode",
    "postgresql://",
    "an injected failure",
    "<html",
    "site-packages",
)


class Outcome(SeenRun):
    """One run as its client saw it, and its trace."""

    def attempts(self, step_id: str) -> int:
        """How often the step was sent to its agent."""
        started = [e.step_started for e in self.events if e.HasField("step_started")]
        return sum(each.step_id == step_id for each in started)

    def errors(self, agent: str) -> list[str]:
        """Messages of the agent's ERROR events in the response's trace."""
        return [
            event.message
            for event in self.response.trace
            if event.type == TraceEventType.TRACE_EVENT_TYPE_ERROR and event.agent == agent
        ]

    def tools(self, agent: str) -> set[str]:
        """Tools that the agent called."""
        return {
            event.message
            for event in self.response.trace
            if event.type == TraceEventType.TRACE_EVENT_TYPE_TOOL and event.agent == agent
        }

    def decision(self, message: str) -> dict[str, Any]:
        """Data of the first trace event called ``message``."""
        event = next(event for event in self.response.trace if event.message == message)
        return {name: from_value(event.data[name]) for name in event.data}

    def shows_no_internals(self) -> None:
        """Nothing of what the client got is the text of an exception or an endpoint."""
        for event in self.events:
            no_internals(event)


def no_internals(shown: Message | str) -> None:
    """``shown`` holds nothing that only a defect would show."""
    text = shown if isinstance(shown, str) else MessageToJson(shown, ensure_ascii=False)
    found = [each for each in _INTERNALS if each in text]
    assert not found, f"{found} in {text}"


@dataclass
class Harness:
    """Running services; those in ``parts`` can be stopped one by one."""

    client: BosClient
    model: ScriptedModel
    mcp_telemetry: Telemetry
    telemetry: Telemetry
    """Of all services but mcp_db."""
    parts: dict[str, AsyncExitStack] = field(default_factory=dict)

    async def ask(self, question: str, **options: Any) -> Outcome:
        """Ask with trace and the company's today, and follow the run to its end."""
        options = {"context": TODAY, "trace": True, **options}
        async with (
            asyncio.timeout(_LONGEST_RUN_S),
            aclosing(self.client.ask_stream(question, **options)) as stream,
        ):
            return Outcome([event async for event in stream])

    async def stop(self, part: str) -> None:
        """Stop one service, for good."""
        await self.parts.pop(part).aclose()

    def queries(self) -> int:
        """Queries that reached mcp_db, run or refused."""
        return int(
            sum(
                sample.value
                for metric in self.mcp_telemetry.registry.collect()
                for sample in metric.samples
                if sample.name == "bos_db_queries_total"
            )
        )

    def calls(self, schema: str) -> int:
        """Calls of the model that asked for ``schema``."""
        return sum(request.schema == schema for request in self.model.requests)

    async def _start(self, part: str, service: AbstractAsyncContextManager[Any]) -> Any:
        stack = self.parts[part] = AsyncExitStack()
        return await stack.enter_async_context(service)


@asynccontextmanager
async def open_harness(
    company: DatabaseSettings,
    store_url: str,
    *,
    replies: Sequence[Fixture] = (),
    agents: Sequence[Agent] = (),
    targets: Mapping[str, str] | None = None,
    gateway: Mapping[str, Any] | None = None,
    planner: Mapping[str, Any] | None = None,
    models: Mapping[str, Any] | None = None,
    databases: Mapping[str, DatabaseSettings] | None = None,
    apart: bool = False,
) -> AsyncIterator[Harness]:
    """Every service, with ``agents`` beside sql and computation.

    Args:
        company: The sample company, as mcp_db sees it.
        store_url: Empty database for the run log.
        replies: Replies of the model beside those to the demo questions.
        agents: More agents, each served for real.
        targets: More targets for the gateway's list, of agents served elsewhere or nowhere.
        gateway: Settings of the gateway.
        planner: Settings of the planner.
        models: Settings of the models.
        databases: More databases by the names that requests give as their backend.
        apart: Each service knows of the endpoint only what it has seen itself, as it would in a
            process of its own.
    """
    telemetry = Telemetry.for_tests("harness")
    server = ServerSettings(port=0, grace_s=0.2)
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(
            ScriptedModel(
                [*demo_fixtures(DEFAULT_TODAY), *dialogue_fixtures(DEFAULT_TODAY), *replies]
            )
        )
        # The policy of production; only the waits are short.
        short = {"retry_base_s": 0.001, "retry_cap_s": 0.002, "breaker_s": 0.001}
        options = {**short, **(models or {})}
        settled = model_settings(model, **options)
        shared = await stack.enter_async_context(Models(settled, telemetry))

        async def known() -> Models:
            return await stack.enter_async_context(Models(settled, telemetry)) if apart else shared

        harness = Harness(BosClient(""), model, Telemetry.for_tests("mcp_db"), telemetry)
        stack.push_async_callback(_stop_all, harness)
        mcp_db = await harness._start(
            "mcp_db",
            serve_mcp_db(
                McpDbSettings.load(
                    server=server, databases={"company": company, **(databases or {})}
                ),
                harness.mcp_telemetry,
            ),
        )
        sandbox = await harness._start(
            "sandbox",
            serve_sandbox(
                SandboxSettings.load(server=server, warm_workers=1), telemetry.named("sandbox")
            ),
        )
        served = {
            "planner": serve_planner(
                PlannerSettings.load(server=server, **(planner or {})),
                telemetry,
                models=await known(),
            ),
            "composer": serve_composer(
                ComposerSettings.load(server=server), telemetry, models=await known()
            ),
            "sql": serve_sql(
                SqlSettings.load(server=server, mcp_url=mcp_db.url),
                telemetry,
                models=await known(),
            ),
            "computation": serve_computation(
                ComputationSettings.load(server=server, sandbox_target=sandbox.address),
                telemetry,
                models=await known(),
            ),
        }
        addresses = {
            name: (await harness._start(name, service)).address for name, service in served.items()
        }
        for agent in agents:
            name = agent.card.name
            addresses[name] = await harness._start(name, agent_server(agent))
        planner_target, composer_target = addresses.pop("planner"), addresses.pop("composer")
        listed = {**addresses, **(targets or {})}
        settings = GatewaySettings.load(
            **{
                "server": server,
                "store_url": store_url,
                "planner_target": planner_target,
                "composer_target": composer_target,
                # As in deployment config: one line, one entry per agent.
                "agent_targets": ",".join(f"{name}={at}" for name, at in listed.items()),
                "backoff_s": 0.01,
                "restart_wait_s": 0,
                **(gateway or {}),
            }
        )
        running = await harness._start(
            "gateway", serve_gateway(settings, telemetry.named("gateway"))
        )
        harness.client = await stack.enter_async_context(BosClient(running.address))
        yield harness


async def _stop_all(harness: Harness) -> None:
    for part in reversed(list(harness.parts)):
        await harness.stop(part)


def plan_reply(question: str, *steps: Mapping[str, Any], **reply: Any) -> Fixture:
    """The planner's model answers ``question`` with these steps."""
    return fixture(
        f"plan of {question}",
        [f"### Question\n{question}\n\n### Instructions"],
        schema="PlannerReply",
        json={
            "rationale": "As scripted.",
            "intent": "DATA_QA",
            "confidence": 0.9,
            "steps": list(steps),
            **reply,
        },
    )


def planned(step_id: str, agent: str, task: str, *needs: str, **inputs: Any) -> dict[str, Any]:
    """One step of a plan as the model writes it."""
    named = [{"name": name, "value": value} for name, value in inputs.items()]
    return {
        "step_id": step_id,
        "agent": agent,
        "task": task,
        "depends_on": list(needs),
        "sub_task_input": named,
    }


def query_replies(task: str, sql: str, *tables: str, review: str | None = None) -> list[Fixture]:
    """The sql agent's model answers ``task`` with ``sql``, of which a review makes ``review``."""

    def reply(schema: str, json: Mapping[str, Any]) -> Fixture:
        return fixture(f"{schema} of {task}", [f"### Task\n{task}\n"], schema=schema, json=json)

    return [
        reply("QueryDraft", {"is_clear": True, "sql": sql, "used_tables": list(tables)}),
        reply("QueryReview", {"is_correct": review is None, "corrected_sql": review}),
        reply("ResultInterpretation", {"answer": "The query found rows."}),
    ]


def program_reply(task: str, code: str) -> Fixture:
    """The computation agent's model answers ``task`` with ``code``."""
    return fixture(
        f"program of {task}",
        [f"### Task\n{task}\n"],
        schema="ComputationPlan",
        json={"code": code, "explanation": "As scripted.", "inputs": []},
    )


def rows(table: Table) -> list[list[Any]]:
    """Cells as Python values."""
    return [[from_value(cell) for cell in row.values] for row in table.rows]
