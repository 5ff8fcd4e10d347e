"""Planner, composer, gateway and agents before one model that obeys orders which it reads."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from secrets import token_hex
from typing import Any

from aiohttp import web as http

from bos.gateway.v1 import Approval
from bos_chassis.settings import ServerSettings
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
from bos_testkit.runs import SeenRun
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import Fixture, fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .obeying_model import plan
from .poisoned_documents import PLANNER, QUESTION

LOOPBACK = (ip_network("127.0.0.0/8"),)
SERVER = ServerSettings(port=0, grace_s=0.2)
TAINTED = "rests on content that others wrote"


@dataclass(frozen=True)
class PoisonRun(SeenRun):
    """A run, and what the user was asked in it."""

    asked: list[Approval] = field(default_factory=list)

    def shown(self) -> list[str]:
        """Every text of the run that a client may show as Markdown."""
        streamed = "".join(
            each.answer_delta.text for each in self.events if each.HasField("answer_delta")
        )
        results = [*self.results.values(), *self.response.agent_results]
        answers = [text for each in results for text in (each.answer, *each.highlights)]
        return [self.response.answer, streamed, *self.response.highlights, *answers]


async def follow(
    client: BosClient, question: str, *, approve: bool = False, **options: Any
) -> PoisonRun:
    """Follow a run to its end; everything that it asks about is approved, or denied."""
    events: list[Any] = []
    asked: list[Approval] = []
    async with aclosing(client.ask_stream(question, **options)) as stream:
        async for event in stream:
            events.append(event)
            if event.HasField("approval_requested"):
                asked.append(event.approval_requested.approval)
                decide = client.approve if approve else client.deny
                await decide(asked[-1].approval_id)
    return PoisonRun(events, asked)


def assert_harmless(run: PoisonRun, agent: str, words: str) -> None:
    """All is tainted, each approval says why, and no text has an image or the user's words."""
    assert run.response.tainted
    assert all(result.tainted for result in run.results.values())
    for approval in run.asked:
        (action,), (shown,) = approval.actions, approval.display.actions
        assert action.tainted
        assert action.tool == shown.tool
        assert TAINTED in shown.notes
        assert any(f"from step read of the agent {agent}" in note for note in shown.notes)
    for text in run.shown():
        assert words not in text
        assert "![" not in text
        assert "<img" not in text


def reading_plan(agent: str) -> Fixture:
    """Read; act with the answer for a task; fail, so that another plan is made."""
    missing = {"name": "x", "value": "@{outputs.read.missing}"}
    steps = (
        {"step_id": "read", "agent": agent, "task": QUESTION},
        {
            "step_id": "act",
            "agent": "deploy",
            "task": "@{outputs.read.answer}",
            "tool_name": "trigger_deployment",
            "depends_on": ["read"],
        },
        {"step_id": "lost", "agent": "echo", "task": "echo", "sub_task_input": [missing]},
    )
    needles = [f"### Question\n{QUESTION}\n\n### Instructions"]
    return fixture("read", needles, schema=PLANNER, json=plan(*steps))


class Names:
    """Resolves nothing, and keeps what was asked for: only the attacker's site has a name."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        raise OSError


@asynccontextmanager
async def serving(
    answer: Callable[[http.Request], Awaitable[http.StreamResponse]],
) -> AsyncIterator[str]:
    """A site that answers every request; yields its URL."""
    app = http.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = http.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        listening = http.TCPSite(runner, "127.0.0.1", 0)
        await listening.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@dataclass
class Core:
    """The services that every harness has, begun in the order in which they need each other."""

    stack: AsyncExitStack
    dsn: str
    model: ScriptedModel
    models: Models
    telemetry: Telemetry

    async def serve(self, serve: Any, settings: Any, name: str, **more: Any) -> str:
        """Address of a service that has the model."""
        served = serve(settings, self.telemetry.named(name), models=self.models, **more)
        return str((await self.stack.enter_async_context(served)).address)

    async def database(self, name: str) -> str:
        """URL of a database of this harness alone."""
        return await create_database(self.dsn, f"{name}_{token_hex(4)}")

    async def gateway(self, agents: dict[str, Any], **settings: Any) -> str:
        """Address of a gateway before these agents, planner and composer.

        Args:
            agents: Agents, or where they are.
            settings: Of the gateway.
        """
        enter = self.stack.enter_async_context
        planner, composer = await asyncio.gather(
            self.serve(serve_planner, PlannerSettings.load(server=SERVER), "planner"),
            self.serve(serve_composer, ComposerSettings.load(server=SERVER), "composer"),
        )
        targets = {
            name: agent if isinstance(agent, str) else await enter(agent_server(agent))
            for name, agent in {**agents, "echo": EchoAgent("echo")}.items()
        }
        chosen = GatewaySettings.load(
            server=SERVER,
            store_url=await self.database("poison_runs"),
            planner_target=planner,
            composer_target=composer,
            agent_targets=targets,
            backoff_s=0.01,
            **settings,
        )
        return (await enter(serve_gateway(chosen, self.telemetry.named("gateway")))).address

    def replies(self) -> Iterator[tuple[str | None, str]]:
        """What the model said, and the form it was asked for."""
        return ((each.schema, each.reply) for each in self.model.requests)


@asynccontextmanager
async def open_core(dsn: str, fixtures: Sequence[Fixture], improvise: Any) -> AsyncIterator[Core]:
    """The model, and what starts services before it.

    Args:
        dsn: Of a database server; each harness has its own.
        fixtures: What the model says where it does not improvise.
        improvise: What it says elsewhere.
    """
    telemetry = Telemetry.for_tests("poison")
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(ScriptedModel(fixtures, improvise=improvise))
        settings = model_settings(model, max_attempts=1)
        models = await stack.enter_async_context(Models(settings, telemetry))
        yield Core(stack, dsn, model, models, telemetry)
