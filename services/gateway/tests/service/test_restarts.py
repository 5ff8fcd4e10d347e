"""Planner, composer and agents that die at work: waited for, and asked again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from gateway_harness.harness import ComposerDouble, Harness, PlannerDouble, result_of

from bos.agent.v1 import AgentExecutionStatus, AgentResult
from bos.composer.v1 import (
    ComposeRequest,
    ComposeResponse,
    ComposerServiceStub,
    add_ComposerServiceServicer_to_server,
)
from bos.planner.v1 import (
    MakePlanRequest,
    PlannerServiceStub,
    add_PlannerServiceServicer_to_server,
)
from bos_agentkit import AgentTask, agent_card
from bos_chassis.channels import Channels
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import Unavailable
from bos_gateway.effects import call_retries
from bos_gateway.effects.call_retries import answered, streamed
from bos_testkit.agents import RecordingAgent
from bos_testkit.plans import step

PLAN, COMPOSE = MakePlanRequest(question="What?"), ComposeRequest(question="What?")
OPTIONS: dict[str, Any] = {"timeout_s": 60.0, "token": ()}


class Line:
    """A TCP line to a service, which breaks as it does when the service's process dies."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self.address = ""

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, piped both ways until it ends."""
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, far_writer]
        pipes = (self._pipe(reader, far_writer), self._pipe(far_reader, writer))
        await asyncio.gather(*pipes)

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while part := await reader.read(65536):
                writer.write(part)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


@asynccontextmanager
async def line_to(servicer: Any, add: Any, name: str) -> AsyncIterator[Line]:
    """A served double behind a line."""
    settings = ServerSettings.load(grace_s=0.1)
    served = [Servicer(servicer, add, name)]
    async with grpc_server(settings, served, telemetry=Telemetry.for_tests(name)) as server:
        line = Line(int(server.address.rpartition(":")[2]))
        listening = await asyncio.start_server(line.take, "127.0.0.1", 0)
        line.address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        try:
            yield line
        finally:
            line.cut()
            listening.close()


class DyingPlanner(PlannerDouble):
    """Breaks the line while it works on its first calls."""

    def __init__(self, deaths: int) -> None:
        super().__init__()
        self.deaths = deaths
        self.line: Line | None = None
        self.calls = 0

    async def MakePlan(self, request: MakePlanRequest, context: Any) -> Any:
        self.calls += 1
        if self.calls <= self.deaths:
            assert self.line is not None
            self.line.cut()
            await asyncio.Event().wait()
        return await super().MakePlan(request, context)


@asynccontextmanager
async def planner_behind_line(deaths: int) -> AsyncIterator[tuple[DyingPlanner, Any]]:
    planner = DyingPlanner(deaths)
    name = "bos.planner.v1.PlannerService"
    async with (
        line_to(planner, add_PlannerServiceServicer_to_server, name) as planner.line,
        Channels(Telemetry.for_tests()) as channels,
    ):
        yield planner, PlannerServiceStub(channels.get(planner.line.address)).MakePlan


async def test_planner_that_died_is_called_again_after_any_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_retries, "_AT_ONCE_S", -1.0)  # as if every call had taken that long
    async with planner_behind_line(deaths=4) as (planner, method):
        await answered(method, PLAN, **OPTIONS, restart_s=60.0)
    assert planner.calls == 5


class DyingComposer(ComposerDouble):
    """Breaks the line behind the first word of its first answer."""

    line: Line | None = None

    async def Compose(
        self, request: ComposeRequest, context: Any
    ) -> AsyncIterator[ComposeResponse]:
        async for message in super().Compose(request, context):
            yield message
            if len(self.requests) == 1:
                self._work = asyncio.create_task(self._die())
                await asyncio.Event().wait()

    async def _die(self) -> None:
        """Once the word has had time to arrive."""
        assert self.line is not None
        await self.heard.wait()
        self.line.cut()

    def __init__(self) -> None:
        super().__init__()
        self.heard = asyncio.Event()


async def test_answer_of_a_composer_that_died_begins_anew() -> None:
    composer = DyingComposer()
    name = "bos.composer.v1.ComposerService"
    messages: list[ComposeResponse | None] = []
    async with (
        line_to(composer, add_ComposerServiceServicer_to_server, name) as composer.line,
        Channels(Telemetry.for_tests()) as channels,
    ):
        method = ComposerServiceStub(channels.get(composer.line.address)).Compose
        async for message in streamed(method, COMPOSE, **OPTIONS, restart_s=60.0):
            messages.append(message)
            composer.heard.set()
    first, again, *rest = messages
    assert (first is not None, again) == (True, None)
    assert rest[0] == first
    assert rest[-1] is not None
    assert rest[-1].WhichOneof("payload") == "output"


async def test_run_whose_composer_died_has_the_composers_answer(harness: Harness) -> None:
    composer = DyingComposer()
    name = "bos.composer.v1.ComposerService"
    await harness.add_agent(RecordingAgent("plain"))
    harness.planner.steps = [step("a", "plain")]
    async with line_to(composer, add_ComposerServiceServicer_to_server, name) as composer.line:
        composer.heard.set()
        harness.composer_target = composer.line.address
        async with harness.gateway(restart_wait_s=60) as gateway:
            events = await gateway.events()
    response = events[-1].run_finished.response
    assert response.answer == "".join(composer.deltas)
    assert len(composer.requests) == 2


class AwayFor(RecordingAgent):
    """Something that it needs is away for its first calls."""

    def __init__(self, name: str, calls: int) -> None:
        super().__init__(name, card=agent_card(name, "Needs something.", max_retries=1))
        self.away = calls

    async def behave(self, task: AgentTask) -> AgentResult:
        if len(self.inputs) <= self.away:
            raise Unavailable("It is away.")
        return await super().behave(task)


@pytest.mark.parametrize(("restart_wait_s", "calls"), [(60, 5), (0, 2)])
async def test_step_waits_for_what_is_away_beyond_attempts_of_its_card(
    harness: Harness, restart_wait_s: float, calls: int
) -> None:
    agent = AwayFor("needy", 4)
    await harness.add_agent(agent)
    harness.planner.steps = [step("a", "needy")]
    async with harness.gateway(restart_wait_s=restart_wait_s) as gateway:
        events = await gateway.events()
    succeeded = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
    assert (result_of(events, "a").status == succeeded) == (calls == 5)
    assert len(agent.inputs) == calls
