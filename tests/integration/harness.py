"""The real services around one scripted model, and what tests say to it and ask of it.

The same ``serve`` functions as in production, every service on a port of its own. Beyond what
``bos serve all`` starts, a harness takes agents that misbehave and replies that mislead.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
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
        started = [e.step_started for e in self.events if e.HasField("step_started")]
        return sum(each.step_id == step_id for each in started)

    def errors(self, agent: str) -> list[str]:
        return [
            event.message
            for event in self.response.trace
            if event.type == TraceEventType.TRACE_EVENT_TYPE_ERROR and event.agent == agent
        ]

    def tools(self, agent: str) -> set[str]:
        return {
            event.message
            for event in self.response.trace
            if event.type == TraceEventType.TRACE_EVENT_TYPE_TOOL and event.agent == agent
        }

    def decision(self, message: str) -> dict[str, Any]:
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
    client: BosClient
    model: ScriptedModel
    mcp_telemetry: Telemetry
    telemetry: Telemetry
    """Of all services but mcp_db."""

    async def ask(self, question: str, **options: Any) -> Outcome:
        """Ask with trace and the company's today, and follow the run to its end."""
        options = {"context": TODAY, "trace": True, **options}
        async with (
            asyncio.timeout(_LONGEST_RUN_S),
            aclosing(self.client.ask_stream(question, **options)) as stream,
        ):
            return Outcome([event async for event in stream])

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
        return sum(request.schema == schema for request in self.model.requests)


@asynccontextmanager
async def open_harness(
    company: DatabaseSettings,
    store_url: str,
    *,
    replies: Sequence[Fixture] = (),
    agents: Sequence[Agent] = (),
    gateway: Mapping[str, Any] | None = None,
    models: Mapping[str, Any] | None = None,
    databases: Mapping[str, DatabaseSettings] | None = None,
) -> AsyncIterator[Harness]:
    """Every service, with ``agents`` beside sql and computation.

    Args:
        company: The sample company, as mcp_db sees it.
        store_url: Empty database for the run log.
        replies: Replies of the model beside those to the demo questions.
        agents: More agents, each served for real.
        gateway: Settings of the gateway.
        models: Settings of the models.
        databases: More databases by the names that requests give as their backend.
    """
    telemetry = Telemetry.for_tests("harness")
    server = ServerSettings(port=0, grace_s=0.2)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        said = [*demo_fixtures(DEFAULT_TODAY), *dialogue_fixtures(DEFAULT_TODAY), *replies]
        model = await enter(ScriptedModel(said))
        # The policy of production; only the waits are short.
        short = {"retry_base_s": 0.001, "retry_cap_s": 0.002, "breaker_s": 0.001}
        settled = model_settings(model, **{**short, **(models or {})})
        given: dict[str, Any] = {"models": await enter(Models(settled, telemetry))}
        mcp_telemetry = Telemetry.for_tests("mcp_db")
        served = {"company": company, **(databases or {})}
        reading = McpDbSettings.load(server=server, databases=served)
        mcp_db = await enter(serve_mcp_db(reading, mcp_telemetry))
        warm = SandboxSettings.load(server=server, warm_workers=1)
        sandbox = await enter(serve_sandbox(warm, telemetry.named("sandbox")))
        planner = await enter(
            serve_planner(PlannerSettings.load(server=server), telemetry, **given)
        )
        composing = ComposerSettings.load(server=server)
        composer = await enter(serve_composer(composing, telemetry, **given))
        querying = SqlSettings.load(server=server, mcp_url=mcp_db.url)
        computing = ComputationSettings.load(server=server, sandbox_target=sandbox.address)
        addresses = {
            "sql": (await enter(serve_sql(querying, telemetry, **given))).address,
            "computation": (await enter(serve_computation(computing, telemetry, **given))).address,
        }
        for agent in agents:
            addresses[agent.card.name] = await enter(agent_server(agent))
        settings = GatewaySettings.load(
            **{
                "server": server,
                "store_url": store_url,
                "planner_target": planner.address,
                "composer_target": composer.address,
                # As in deployment config: one line, one entry per agent.
                "agent_targets": ",".join(f"{name}={at}" for name, at in addresses.items()),
                "backoff_s": 0.01,
                "restart_wait_s": 0,
                **(gateway or {}),
            }
        )
        running = await enter(serve_gateway(settings, telemetry.named("gateway")))
        client = await enter(BosClient(running.address))
        yield Harness(client, model, mcp_telemetry, telemetry)


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
    return [[from_value(cell) for cell in row.values] for row in table.rows]
