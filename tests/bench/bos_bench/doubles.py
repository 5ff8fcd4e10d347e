"""A gateway on a real log, between doubles that cost nearly nothing: what is left is its own cost.

The plan has five steps: two side by side, one that uses the outputs of both by reference, and two
more one after another.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from bos.agent.v1 import AgentInput, AgentServiceStub, ExecuteRequest
from bos.composer.v1 import (
    ComposeRequest,
    ComposeResponse,
    ComposerOutput,
    ComposerServiceServicer,
    add_ComposerServiceServicer_to_server,
)
from bos.planner.v1 import (
    MakePlanRequest,
    MakePlanResponse,
    Plan,
    PlannerServiceServicer,
    Step,
    add_PlannerServiceServicer_to_server,
)
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import ServerSettings
from bos_chassis.values import make_table, to_value
from bos_gateway.service import serve
from bos_gateway.settings import GatewaySettings
from bos_testkit.agents import EchoAgent, agent_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bos.agent.v1 import AgentResult
    from bos_agentkit import AgentTask
    from bos_chassis.telemetry import Telemetry

QUESTION = "What did our best customer bring last quarter, and what share of the total is that?"
WAVES = (("sales", "costs"), ("margin",), ("check",), ("report",))
"""Steps in the order in which they can run."""
_OUTPUT = {"customer": "Acme Industries", "revenue": 182340.5, "orders": 42}
_WORDS = ("Acme ", "Industries ", "brought ", "182,340.50 EUR, ", "12 % of the total.")
_MORE_STEPS_THAN_EVER = 1024
_MORE_RUNS_THAN_EVER = 256


def five_steps() -> list[Step]:
    """The plan; each step has an agent of its own, named like the step."""
    needs: dict[str, tuple[str, ...]] = {
        "sales": (),
        "costs": (),
        "margin": ("sales", "costs"),
        "check": ("margin",),
        "report": ("check",),
    }
    return [
        Step(
            step_id=name,
            agent=name,
            task=f"Find the {name} of the last quarter.",
            depends_on=wanted,
            sub_task_input={one: to_value(f"@{{outputs.{one}.revenue}}") for one in wanted},
        )
        for name, wanted in needs.items()
    ]


class FixedPlanner(PlannerServiceServicer):
    """Always the same plan."""

    def __init__(self) -> None:
        self._response = MakePlanResponse(plan=Plan(steps=five_steps(), origin="bench"))
        self._response.decision.chosen_agents.extend(name for wave in WAVES for name in wave)
        self._response.decision.confidence = 0.9

    async def MakePlan(self, request: MakePlanRequest, context: Any) -> MakePlanResponse:
        return self._response


class FixedComposer(ComposerServiceServicer):
    """Always the same answer, in five pieces."""

    async def Compose(
        self, request: ComposeRequest, context: Any
    ) -> AsyncIterator[ComposeResponse]:
        for word in _WORDS:
            yield ComposeResponse(delta=word)
        yield ComposeResponse(output=ComposerOutput(answer="".join(_WORDS)))


class TableAgent(EchoAgent):
    """Beside its data it returns a table, as agents that query a database do."""

    def __init__(self, name: str, rows: int) -> None:
        super().__init__(name, data=_OUTPUT)
        columns = ("customer", "country", "revenue", "orders", "first_order", "active")
        cells = [
            (f"Customer {n}", "Germany", 1234.5 + n, n, f"2026-0{n % 9 + 1}-17", n % 2 == 0)
            for n in range(rows)
        ]
        self._table = make_table(columns, cells)

    async def behave(self, task: AgentTask) -> AgentResult:
        """Echo, with the table."""
        result = await super().behave(task)
        result.table.CopyFrom(self._table)
        return result


@dataclass(frozen=True, slots=True)
class Harness:
    """Planner, composer and five agents, each on a server of its own, all in this process."""

    planner: str
    composer: str
    targets: dict[str, str]
    agents: dict[str, EchoAgent]

    @asynccontextmanager
    async def gateway(self, dsn: str, telemetry: Telemetry) -> AsyncIterator[str]:
        """Serve a gateway in front of them; yields its address."""
        settings = GatewaySettings.load(
            server=_server_settings(),
            store_url=dsn,
            planner_target=self.planner,
            composer_target=self.composer,
            agent_targets=self.targets,
            max_active_runs_per_user=_MORE_RUNS_THAN_EVER,  # all callers are one user
        )
        async with serve(settings, telemetry.named("gateway")) as server:
            yield server.address

    def last_inputs(self) -> dict[str, AgentInput]:
        """What each agent was sent last."""
        return {name: agent.inputs[-1] for name, agent in self.agents.items()}


@asynccontextmanager
async def open_harness(telemetry: Telemetry, rows: int = 0) -> AsyncIterator[Harness]:
    """Serve the doubles; agents return tables of ``rows`` rows, or none."""

    async def served(servicer: object, add: Callable[..., None], area: str) -> str:
        name = f"bos.{area}.v1.{area.capitalize()}Service"
        server = grpc_server(
            _server_settings(), [Servicer(servicer, add, name)], telemetry=telemetry.named(area)
        )
        return (await stack.enter_async_context(server)).address

    async with AsyncExitStack() as stack:
        planner = await served(FixedPlanner(), add_PlannerServiceServicer_to_server, "planner")
        composer = await served(FixedComposer(), add_ComposerServiceServicer_to_server, "composer")
        agents = {
            name: TableAgent(name, rows) if rows else EchoAgent(name, data=_OUTPUT)
            for wave in WAVES
            for name in wave
        }
        targets = {
            name: await stack.enter_async_context(
                agent_server(
                    agent,
                    telemetry=telemetry.named(name),
                    max_concurrent_steps=_MORE_STEPS_THAN_EVER,
                )
            )
            for name, agent in agents.items()
        }
        yield Harness(planner, composer, targets, agents)


class BareLoop:
    """The same five agent calls without a gateway: what a script would do, and no less.

    Args:
        harness: The agents.
        inputs: What to send; a copy of what a gateway sent, so that every byte is the same.
    """

    def __init__(self, harness: Harness, inputs: dict[str, AgentInput]) -> None:
        self._channels = {n: grpc.aio.insecure_channel(t) for n, t in harness.targets.items()}
        self._stubs = {n: AgentServiceStub(channel) for n, channel in self._channels.items()}
        self._inputs = inputs

    async def __aenter__(self) -> BareLoop:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))

    async def run(self, _: int) -> None:
        """One run: each wave when the one before has ended."""
        for wave in WAVES:
            await asyncio.gather(*(self._call(name) for name in wave))

    async def _call(self, name: str) -> None:
        call = self._stubs[name].Execute(ExecuteRequest(input=self._inputs[name]), timeout=30)
        async for response in call:
            if response.WhichOneof("payload") == "result":
                return
        raise RuntimeError(f"the agent {name} ended without a result")


def _server_settings() -> ServerSettings:
    return ServerSettings.load(host="127.0.0.1", port=0, drain_delay_s=0.0, grace_s=1.0)
