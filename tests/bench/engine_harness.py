"""What the benches of the run engine share: doubles in this process, gateways as processes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from bos.composer.v1 import (
    ComposeRequest,
    ComposeResponse,
    ComposerOutput,
    ComposerServiceServicer,
    add_ComposerServiceServicer_to_server,
)
from bos.gateway.v1 import (
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    AskRequest,
    AskStreamRequest,
    OrchestratorServiceStub,
)
from bos.planner.v1 import (
    MakePlanRequest,
    MakePlanResponse,
    Plan,
    PlannerServiceServicer,
    add_PlannerServiceServicer_to_server,
)
from bos_bench.processes import Child, child
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import ServerSettings, TelemetrySettings
from bos_chassis.telemetry import setup_telemetry
from bos_testkit.agents import EchoAgent, agent_server
from bos_testkit.plans import step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_TOKEN = "token "
_BETWEEN_TOKENS_S = 0.02
_STEP_S = 0.05
_MORE_STEPS_THAN_EVER = 1024
TIMEOUT_S = 60.0


class Planner(PlannerServiceServicer):
    """Three steps of which one needs the others; of ``slow`` questions, one that waits.

    Of questions to ``tell`` something five that take their time, as those of real agents do.
    """

    async def MakePlan(self, request: MakePlanRequest, context: Any) -> MakePlanResponse:
        steps = [step("a", "echo"), step("b", "echo"), step("c", "echo", "", "a", "b")]
        if request.question.startswith("slow"):
            steps = [step("a", "gated")]
        if request.question.startswith("Tell"):
            steps = [step("a", "steady"), step("b", "steady"), step("c", "steady", "", "a", "b")]
            steps += [step("d", "steady", "", "c"), step("e", "steady", "", "d")]
        return MakePlanResponse(plan=Plan(steps=steps, origin="bench"), only_plan=True)


class Composer(ComposerServiceServicer):
    """As many words as the question's last word says, one after the other; else one."""

    async def Compose(
        self, request: ComposeRequest, context: Any
    ) -> AsyncIterator[ComposeResponse]:
        last = request.question.split()[-1]
        tokens = int(last) if last.isdigit() else 0
        for _ in range(tokens):
            await asyncio.sleep(_BETWEEN_TOKENS_S)
            yield ComposeResponse(delta=_TOKEN)
        if not tokens:
            yield ComposeResponse(delta=_TOKEN)
        yield ComposeResponse(output=ComposerOutput(answer=_TOKEN * max(1, tokens)))


class GatedAgent(EchoAgent):
    """Waits for its gate."""

    def __init__(self) -> None:
        super().__init__("gated")
        self.gate = asyncio.Event()

    async def behave(self, task: Any) -> Any:
        """Wait, then echo."""
        await self.gate.wait()
        return await super().behave(task)


class SteadyAgent(EchoAgent):
    """Takes a twentieth of a second."""

    def __init__(self) -> None:
        super().__init__("steady")

    async def behave(self, task: Any) -> Any:
        """Take it, then echo."""
        await asyncio.sleep(_STEP_S)
        return await super().behave(task)


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway process and a way to it."""

    child: Child
    stub: Any

    async def ask(self, question: str) -> str:
        """Ask and wait for the answer; the id of the run.

        Raises:
            RuntimeError: the run did not succeed.
        """
        request = AskRequest(request=AgentRequest(question=question))
        response = (await self.stub.Ask(request, timeout=TIMEOUT_S)).response
        if response.status != RUN_STATUS_SUCCEEDED:
            raise RuntimeError(f"{question}: {response}")
        run_id: str = response.run_id
        return run_id

    def stream(self, question: str) -> Any:
        """The call of an AskStream."""
        request = AskStreamRequest(request=AgentRequest(question=question))
        return self.stub.AskStream(request, timeout=TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Harness:
    """Where the doubles listen."""

    planner: str
    composer: str
    agents: str
    gated: GatedAgent

    @asynccontextmanager
    async def gateway(self, dsn: str, **settings: str) -> AsyncIterator[Gateway]:
        """A gateway process with the product's settings, but for the number of runs at once."""
        started = child(
            "gateway",
            "bos_gateway",
            BOS_GATEWAY_STORE_URL=dsn,
            BOS_GATEWAY_PLANNER_TARGET=self.planner,
            BOS_GATEWAY_COMPOSER_TARGET=self.composer,
            BOS_GATEWAY_AGENT_TARGETS=self.agents,
            BOS_GATEWAY_MAX_ACTIVE_RUNS_PER_USER="0",  # all callers are one user
            BOS_GATEWAY_TELEMETRY__LOG_LEVEL="error",
            **{f"BOS_GATEWAY_{name.upper()}": value for name, value in settings.items()},
        )
        async with (
            started as process,
            grpc.aio.insecure_channel(process.said["address"]) as channel,
        ):
            yield Gateway(process, OrchestratorServiceStub(channel))


@asynccontextmanager
async def open_harness() -> AsyncIterator[Harness]:
    """Serve planner, composer and three agents."""
    settings = ServerSettings.load(host="127.0.0.1", port=0, drain_delay_s=0.0, grace_s=0.2)
    async with AsyncExitStack() as stack:
        quiet = TelemetrySettings.load(log_level="error", otlp_endpoint=None)
        telemetry = stack.enter_context(setup_telemetry("engine-bench", quiet))

        async def served(servicer: object, add: Callable[..., None], name: str) -> str:
            server = grpc_server(settings, [Servicer(servicer, add, name)], telemetry=telemetry)
            return (await stack.enter_async_context(server)).address

        gated = GatedAgent()
        agents = [
            await stack.enter_async_context(
                agent_server(agent, telemetry=telemetry, max_concurrent_steps=_MORE_STEPS_THAN_EVER)
            )
            for agent in (EchoAgent("echo"), gated, SteadyAgent())
        ]
        yield Harness(
            await served(
                Planner(), add_PlannerServiceServicer_to_server, "bos.planner.v1.PlannerService"
            ),
            await served(
                Composer(), add_ComposerServiceServicer_to_server, "bos.composer.v1.ComposerService"
            ),
            f"echo={agents[0]},gated={agents[1]},steady={agents[2]}",
            gated,
        )
