"""A whole gateway on a fresh database, with a planner and a composer that do as the test says."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from bos.agent.v1 import (
    AgentResult,
    AgentServiceServicer,
    InstructionMode,
    add_AgentServiceServicer_to_server,
)
from bos.common.v1 import TRACE_EVENT_TYPE_DECISION
from bos.composer.v1 import (
    ComposeRequest,
    ComposeResponse,
    ComposerOutput,
    ComposerServiceServicer,
    add_ComposerServiceServicer_to_server,
)
from bos.gateway.v1 import (
    AgentRequest,
    AskRequest,
    AskStreamRequest,
    CancelRunRequest,
    GetRunRequest,
    OrchestratorServiceStub,
    PlanQuestionRequest,
    RunEvent,
    WatchRunRequest,
)
from bos.memory.v1 import MemoryTurnServiceServicer, add_MemoryTurnServiceServicer_to_server
from bos.planner.v1 import (
    ClassifyInstructionsRequest,
    ClassifyInstructionsResponse,
    MakePlanRequest,
    MakePlanResponse,
    Plan,
    PlannerServiceServicer,
    Step,
    add_PlannerServiceServicer_to_server,
)
from bos_chassis.server import GrpcServer, Servicer, grpc_server
from bos_chassis.settings import AuthSettings, ServerSettings, TelemetrySettings, TlsSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import BosError, FailedPrecondition
from bos_gateway.service import serve
from bos_gateway.settings import GatewaySettings
from bos_testkit.agents import agent_server
from bos_testkit.deploy import DeployAgent
from bos_testkit.forked import ForkedProcess, forked_process
from bos_testkit.plans import step

_ERASE = (
    "from bos_gateway.operator.commands.erasing import erase; erase(prog_name='bos runs erase')"
)
SHORT_LEASE = {"lease_s": 3.0}
"""For a gateway that adopts: it judges others once it has held a lease for as long as one lives."""
_IMPORTED = (
    "pytest",
    "bos_gateway.service",
    "gateway_harness.crash.crashing_gateway",
    "gateway_harness.harness",
)


@dataclass
class PlannerDouble(PlannerServiceServicer):
    """Answers with the steps it was given, or raises the error it was given."""

    steps: list[Step] = field(default_factory=list)
    error: BosError | None = None
    requests: list[MakePlanRequest] = field(default_factory=list)
    answer: MakePlanResponse | None = None
    before: Callable[[], Awaitable[object]] | None = None
    """Awaited before every plan."""
    revisions: list[list[Step]] = field(default_factory=list)
    """Plans for one revision after the other; without any it says that it has but one plan."""
    asks_in_revision: str = ""
    """A question to the user beside every revised plan."""
    mode: InstructionMode | None = None
    """What instructions are classified as; None fails."""
    instructions: list[ClassifyInstructionsRequest] = field(default_factory=list)
    by_question: dict[str, list[Step]] = field(default_factory=dict)
    """Steps for questions with this word; ``steps`` are for all others."""

    async def ClassifyInstructions(
        self, request: ClassifyInstructionsRequest, context: Any
    ) -> ClassifyInstructionsResponse:
        self.instructions.append(request)
        if self.mode is None:
            raise FailedPrecondition("The planner cannot tell.")
        answer = ClassifyInstructionsResponse(mode=self.mode)
        answer.usage.input_tokens = 30
        return answer

    async def MakePlan(self, request: MakePlanRequest, context: Any) -> MakePlanResponse:
        self.requests.append(request)
        if self.before is not None:
            await self.before()
        if self.error is not None:
            raise self.error
        if self.answer is not None:
            return self.answer
        named = (steps for word, steps in self.by_question.items() if word in request.question)
        steps, only_plan = next(named, self.steps), not self.revisions
        if (number := request.revision.revision) > 0:
            steps = self.revisions[number - 1] if number <= len(self.revisions) else []
        response = MakePlanResponse(plan=Plan(steps=steps, origin="test"), only_plan=only_plan)
        response.decision.chosen_agents.extend(dict.fromkeys(s.agent for s in steps))
        response.decision.confidence = 0.9
        if number > 0 and self.asks_in_revision:
            response.clarification.questions.add(question=self.asks_in_revision)
        response.trace.add(
            type=TRACE_EVENT_TYPE_DECISION,
            agent="planner",
            message="Planner produced execution order",
        )
        return response


@dataclass
class ComposerDouble(ComposerServiceServicer):
    """Streams the given words as deltas, then the results' answers as the final output."""

    deltas: list[str] = field(default_factory=lambda: ["It ", "is ", "done."])
    error: BosError | None = None
    requests: list[ComposeRequest] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event | None = None
    output: ComposerOutput | None = None
    """In the place of what would be made of the deltas."""

    async def Compose(
        self, request: ComposeRequest, context: Any
    ) -> AsyncIterator[ComposeResponse]:
        self.requests.append(request)
        self.started.set()
        for delta in self.deltas:
            yield ComposeResponse(delta=delta)
        if self.release is not None:
            await self.release.wait()
        if self.error is not None:
            raise self.error
        if self.output is not None:
            yield ComposeResponse(output=self.output)
            return
        output = ComposerOutput(answer="".join(self.deltas))
        for result in request.results:
            if result.HasField("table") and not output.HasField("data"):
                output.data.CopyFrom(result.table)
        yield ComposeResponse(output=output)


@dataclass
class Harness:
    """Planner, composer and agents, and the gateways started in front of them."""

    dsn: str
    planner: PlannerDouble
    composer: ComposerDouble
    telemetry: Telemetry
    stack: AsyncExitStack
    planner_target: str
    composer_target: str
    agent_targets: dict[str, str] = field(default_factory=dict)

    async def add_agent(
        self,
        agent: Any,
        *,
        auth: AuthSettings | None = None,
        step_timeout_s: float | None = None,
    ) -> str:
        """Serve an agent, or the servicer of one, and put it on the gateway's list."""
        if isinstance(agent, AgentServiceServicer):
            address = await serve_double(self.stack, agent)
        else:
            serving = agent_server(agent, auth=auth, step_timeout_s=step_timeout_s)
            address = await self.stack.enter_async_context(serving)
        self.agent_targets[agent.card.name] = address
        return address

    async def plan(self, *agents: Any, **serving: Any) -> Any:
        """Serve these agents; plans are a step for each: ``a``, ``b``, ... Returns the first."""
        for agent in agents:
            await self.add_agent(agent, **serving)
        self.planner.steps = [
            step(chr(97 + number), agent.card.name) for number, agent in enumerate(agents)
        ]
        return agents[0]

    async def plan_deployment(self, task: str = "deploy shop 1.2") -> DeployAgent:
        """Serve an agent that asks before it deploys; plans are one step of it."""
        await self.add_agent(agent := DeployAgent())
        self.planner.steps = [deploying(task)]
        return agent

    @asynccontextmanager
    async def gateway(self, **overrides: Any) -> AsyncIterator[Client]:
        """Serve a gateway; yields a client of it."""
        settings = GatewaySettings.load(
            **{
                "server": ServerSettings.load(grace_s=0.2),
                "auth": AuthSettings.load(),
                "telemetry": TelemetrySettings.load(),
                "store_url": self.dsn,
                "planner_target": self.planner_target,
                "composer_target": self.composer_target,
                "agent_targets": self.agent_targets,
                "backoff_s": 0.01,
                "restart_wait_s": 0,
                # A busy machine must not break it: tests about losing it say so.
                "lease_s": 15.0,
                "lease_renewal_s": 0.25,
                **overrides,
            }
        )
        telemetry = Telemetry.for_tests("gateway")
        async with (
            serve(settings, telemetry) as server,
            grpc.aio.insecure_channel(server.address) as channel,
        ):
            yield Client(channel, server, telemetry)


@dataclass
class Client:
    """A client of one gateway, with the calls that tests make most."""

    channel: grpc.aio.Channel
    server: GrpcServer
    telemetry: Telemetry | None = None
    caller: Any = None
    """Metadata of all calls."""

    def by(self, caller: Any) -> Client:
        """The same gateway, called with these credentials."""
        return replace(self, caller=caller)

    def metric(self, name: str, **labels: str) -> float | None:
        """A sample of the gateway's metrics; None if there is none, or it is another process."""
        if self.telemetry is None:
            return None
        return self.telemetry.registry.get_sample_value(name, labels)

    @property
    def stub(self) -> Any:
        return OrchestratorServiceStub(self.channel)

    def call(self, request: Any, timeout_s: float = 60) -> Any:
        """Call the method that takes such a request."""
        services = request.DESCRIPTOR.file.services_by_name.values()
        methods = [method for service in services for method in service.methods]
        (method,) = [each for each in methods if each.input_type is request.DESCRIPTOR]
        make = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
        answer = GetMessageClass(method.output_type)
        path = f"/{method.containing_service.full_name}/{method.name}"
        method_call: Any = make(path, type(request).SerializeToString, answer.FromString)
        return method_call(request, timeout=timeout_s, metadata=self.caller)

    async def ask(self, question: str = "What is new?", **request: Any) -> Any:
        message = AskRequest(request=AgentRequest(question=question, **request))
        return (await self.call(message)).response

    def stream(self, question: str = "What is new?", **request: Any) -> Any:
        return self.call(AskStreamRequest(request=AgentRequest(question=question, **request)))

    async def events(self, question: str = "What is new?", **request: Any) -> list[RunEvent]:
        return [message.event async for message in self.stream(question, **request)]

    async def plan(self, question: str = "What is new?", **request: Any) -> Any:
        """A plan without a run."""
        request_of_plan = AgentRequest(question=question, **request)
        return await self.call(PlanQuestionRequest(request=request_of_plan))

    async def run(self, run_id: str) -> Any:
        return (await self.call(GetRunRequest(run_id=run_id))).run

    async def cancel(self, run_id: str, reason: str = "") -> None:
        await self.call(CancelRunRequest(run_id=run_id, reason=reason))

    async def watch(
        self, run_id: str, after_sequence: int = 0, after_offset: int = 0
    ) -> list[RunEvent]:
        request = WatchRunRequest(
            run_id=run_id, after_sequence=after_sequence, after_offset=after_offset
        )
        return [message.event async for message in self.call(request)]


def deploying(task: str = "deploy shop 1.2", step_id: str = "a", agent: str = "deploy") -> Step:
    """A step that may propose a deployment."""
    made = step(step_id, agent, task)
    made.tools.extend(["check_deploy_status", "trigger_deployment"])
    return made


def gateway_settings(harness: Harness, **overrides: object) -> dict[str, str]:
    settings = {
        "STORE_URL": harness.dsn,
        "PLANNER_TARGET": harness.planner_target,
        "COMPOSER_TARGET": harness.composer_target,
        "AGENT_TARGETS": ",".join(f"{n}={t}" for n, t in harness.agent_targets.items()),
        # As short as a busy machine can keep it: tests wait until that of a dead one has run out.
        "LEASE_S": str(SHORT_LEASE["lease_s"]),
        "LEASE_RENEWAL_S": "0.25",
        "SERVER__GRACE_S": "0.2",
        "RESTART_WAIT_S": "0",
        **{name.upper(): str(value) for name, value in overrides.items()},
    }
    return {f"BOS_GATEWAY_{key}": value for key, value in settings.items()}


@asynccontextmanager
async def gateway_process(
    harness: Harness,
    *,
    log: IO[bytes] | int = asyncio.subprocess.DEVNULL,
    program: Sequence[str] = ("-m", "bos_gateway"),
    python: Path | None = None,
    **overrides: object,
) -> AsyncIterator[tuple[ForkedProcess, Client]]:
    """A gateway in a process of its own, with a client; killed at the end if it still runs.

    Its log goes to ``log``; ``program`` is what Python, or that of another version, runs;
    ``overrides`` are settings of the gateway.
    """
    environment = {**os.environ, **gateway_settings(harness, **overrides)}
    # What ``-c`` runs is another version: it must not meet the modules of this one.
    starting = (
        _fresh_process(python or sys.executable, *program, environment=environment, errors=log)
        if python or program[0] == "-c"
        else forked_process(*program, environment=environment, errors=log, imported=_IMPORTED)
    )
    async with starting as process:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        async with grpc.aio.insecure_channel(json.loads(line)["address"]) as channel:
            yield process, Client(channel, None)


async def erased(harness: Harness, *arguments: str, **more: str) -> tuple[int | None, str, str]:
    """``bos runs erase`` as a process: exit status, standard output, standard error."""
    settings = {"BOS_GATEWAY_STORE_URL": harness.dsn, **more}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _ERASE, *arguments),
        env={**os.environ, **settings},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def _fresh_process(
    *program: str | Path, environment: dict[str, str], errors: IO[bytes] | int
) -> AsyncIterator[Any]:
    process = await asyncio.create_subprocess_exec(
        *program,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def kinds(events: list[RunEvent]) -> list[str]:
    """What happened, in order, repetitions of progress and deltas as one."""
    names = [event.WhichOneof("event") for event in events]
    return [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]


def result_of(events: list[RunEvent], step_id: str) -> AgentResult:
    (found,) = [e.step_finished.result for e in events if e.step_finished.step_id == step_id]
    return found


@asynccontextmanager
async def open_harness(
    dsn: str, composer: ComposerDouble | None = None, planner: PlannerDouble | None = None
) -> AsyncIterator[Harness]:
    """Planner, composer and no agents yet, in front of an empty database."""
    planner, composer = planner or PlannerDouble(), composer or ComposerDouble()
    telemetry = Telemetry.for_tests("doubles")

    async with AsyncExitStack() as stack:
        planner_target = await serve_double(stack, planner, telemetry)
        composer_target = await serve_double(stack, composer, telemetry)
        yield Harness(dsn, planner, composer, telemetry, stack, planner_target, composer_target)


_SERVICES: dict[type, tuple[Any, str]] = {
    AgentServiceServicer: (add_AgentServiceServicer_to_server, "agent.v1.AgentService"),
    PlannerServiceServicer: (add_PlannerServiceServicer_to_server, "planner.v1.PlannerService"),
    ComposerServiceServicer: (add_ComposerServiceServicer_to_server, "composer.v1.ComposerService"),
    MemoryTurnServiceServicer: (
        add_MemoryTurnServiceServicer_to_server,
        "memory.v1.MemoryTurnService",
    ),
}


async def serve_double(
    stack: AsyncExitStack,
    servicer: Any,
    telemetry: Telemetry | None = None,
    tls: TlsSettings | None = None,
) -> str:
    """Serve a double of a service until the stack is closed; returns its address."""
    ((add, name),) = [each for kind, each in _SERVICES.items() if isinstance(servicer, kind)]
    settings = ServerSettings(grace_s=0.1, tls=tls or TlsSettings())
    served = Servicer(servicer, add, f"bos.{name}")
    serving = grpc_server(settings, [served], telemetry=telemetry or Telemetry.for_tests(name))
    return (await stack.enter_async_context(serving)).address
