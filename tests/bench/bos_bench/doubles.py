"""Gateways between doubles that cost nearly nothing: what is left is the gateways' own cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

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
from bos_bench.processes import Child, child
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value
from bos_gateway.service import serve
from bos_gateway.settings import GatewaySettings
from bos_testkit.agents import EchoAgent, RecordingAgent, agent_server

QUESTION = "What did our best customer bring last quarter, and what share of the total is that?"
HOLD = "hold"
"""Questions that begin so are never planned."""
_OUTPUT = {"customer": "Acme Industries", "revenue": 182340.5, "orders": 42}
_WORDS = ("Acme ", "Industries ", "brought ", "182,340.50 EUR, ", "12 % of the total.")
_BETWEEN_TOKENS_S = 0.02
_MORE_STEPS_THAN_EVER = 1024
_MORE_RUNS_THAN_EVER = 256


def five_steps(_: str) -> list[Step]:
    """Two side by side, one that refers to outputs of both, and two more one after another.

    Each step has an agent of its own, named like the step.
    """
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
    """The steps that ``plan`` gives for a question."""

    def __init__(self, plan: Callable[[str], list[Step]]) -> None:
        self._plan = plan

    async def MakePlan(self, request: MakePlanRequest, context: Any) -> MakePlanResponse:
        if request.question.startswith(HOLD):
            await asyncio.Event().wait()
        return MakePlanResponse(plan=Plan(steps=self._plan(request.question), origin="bench"))


class FixedComposer(ComposerServiceServicer):
    """Five pieces at once; as many one after another as a number at the question's end says."""

    async def Compose(
        self, request: ComposeRequest, context: Any
    ) -> AsyncIterator[ComposeResponse]:
        last = request.question.split()[-1]
        words = ("token ",) * int(last) if last.isdigit() else _WORDS
        for word in words:
            if words is not _WORDS:
                await asyncio.sleep(_BETWEEN_TOKENS_S)
            yield ComposeResponse(delta=word)
        yield ComposeResponse(output=ComposerOutput(answer="".join(words)))


def five_agents() -> list[EchoAgent]:
    """Those of :func:`five_steps`."""
    return [EchoAgent(each.agent, data=_OUTPUT) for each in five_steps("")]


@dataclass(frozen=True, slots=True)
class Harness:
    """Planner, composer and agents, each on a server of its own, all in this process."""

    planner: str
    composer: str
    targets: dict[str, str]

    @asynccontextmanager
    async def gateway(self, dsn: str, telemetry: Telemetry) -> AsyncIterator[str]:
        """Serve a gateway in front of them in this process; yields its address."""
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

    def gateway_process(
        self, dsn: str, name: str = "gateway"
    ) -> AbstractAsyncContextManager[Child]:
        """A gateway in front of them that is a process of its own."""
        return child(
            name,
            "bos_gateway",
            BOS_GATEWAY_STORE_URL=dsn,
            BOS_GATEWAY_PLANNER_TARGET=self.planner,
            BOS_GATEWAY_COMPOSER_TARGET=self.composer,
            BOS_GATEWAY_AGENT_TARGETS=",".join(f"{n}={at}" for n, at in self.targets.items()),
            BOS_GATEWAY_MAX_ACTIVE_RUNS_PER_USER="0",  # all callers are one user
            BOS_GATEWAY_TELEMETRY__LOG_LEVEL="error",
        )


@asynccontextmanager
async def open_harness(
    telemetry: Telemetry,
    agents: Iterable[RecordingAgent],
    plan: Callable[[str], list[Step]] = five_steps,
) -> AsyncIterator[Harness]:
    """Serve the doubles."""

    async def served(servicer: object, add: Callable[..., None], area: str) -> str:
        name = f"bos.{area}.v1.{area.capitalize()}Service"
        server = grpc_server(
            _server_settings(), [Servicer(servicer, add, name)], telemetry=telemetry.named(area)
        )
        return (await stack.enter_async_context(server)).address

    async with AsyncExitStack() as stack:
        planner = await served(FixedPlanner(plan), add_PlannerServiceServicer_to_server, "planner")
        composer = await served(FixedComposer(), add_ComposerServiceServicer_to_server, "composer")
        named = {agent.card.name: agent for agent in agents}
        targets = {
            name: await stack.enter_async_context(
                agent_server(
                    agent,
                    telemetry=telemetry.named(name),
                    max_concurrent_steps=_MORE_STEPS_THAN_EVER,
                )
            )
            for name, agent in named.items()
        }
        yield Harness(planner, composer, targets)


def _server_settings() -> ServerSettings:
    return ServerSettings.load(host="127.0.0.1", port=0, drain_delay_s=0.0, grace_s=1.0)
