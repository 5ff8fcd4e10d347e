"""Calls that break off, and services that die at work: waited for, and called again or not."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import Any

import grpc
import pytest
from gateway_harness.harness import ComposerDouble, Harness, PlannerDouble, result_of, serve_double
from gateway_harness.postgres_proxy import Proxy

from bos.agent.v1 import AgentExecutionStatus, AgentResult
from bos.composer.v1 import (
    ComposeRequest,
    ComposeResponse,
    ComposerServiceStub,
)
from bos.planner.v1 import (
    MakePlanRequest,
    PlannerServiceStub,
    add_PlannerServiceServicer_to_server,
)
from bos_agentkit import AgentTask, agent_card
from bos_chassis.channels import Channels, service_config
from bos_chassis.telemetry import Telemetry
from bos_errors import Unavailable
from bos_gateway.effects import call_retries
from bos_gateway.effects.call_retries import answered, streamed
from bos_testkit.agents import RecordingAgent

PLAN, COMPOSE = MakePlanRequest(question="What?"), ComposeRequest(question="What?")
OPTIONS: dict[str, Any] = {"timeout_s": 60.0, "token": ()}
PLANNER, COMPOSER = "bos.planner.v1.PlannerService", "bos.composer.v1.ComposerService"


class Dropping(grpc.aio.ServerInterceptor):
    """Ends calls as a server that goes away does: without any word of ours."""

    def __init__(self, code: grpc.StatusCode, times: int) -> None:
        self.code = code
        self.left = times

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        if self.left <= 0:
            return handler
        self.left -= 1

        async def drop(request: Any, context: Any) -> Any:
            await context.abort(self.code, "going away")

        make: Callable[..., Any] = grpc.unary_unary_rpc_method_handler
        if handler.response_streaming:
            make = grpc.unary_stream_rpc_method_handler
        return make(
            drop,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )


class Breaking(ComposerDouble):
    """Writes a word, then is gone."""

    async def Compose(
        self, request: ComposeRequest, context: Any
    ) -> AsyncIterator[ComposeResponse]:
        async for message in super().Compose(request, context):
            yield message
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")


@asynccontextmanager
async def served(servicer: Any) -> AsyncIterator[str]:
    async with AsyncExitStack() as stack:
        yield await serve_double(stack, servicer)


async def heard(stream: AsyncIterator[Any], messages: list[Any]) -> None:
    async for message in stream:
        messages.append(message)


def method_of(channels: Channels, address: str, service: str = PLANNER) -> Any:
    channel = channels.get(address)
    if service == COMPOSER:
        return ComposerServiceStub(channel).Compose
    return PlannerServiceStub(channel).MakePlan


@pytest.fixture
async def channels() -> AsyncIterator[Channels]:
    async with Channels(Telemetry.for_tests()) as opened:
        yield opened


async def dropping(planner: PlannerDouble, drops: Dropping) -> tuple[grpc.aio.Server, str]:
    server = grpc.aio.server(interceptors=[drops])
    add_PlannerServiceServicer_to_server(planner, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"127.0.0.1:{port}"


def test_channels_repeat_no_call_that_costs_model_calls() -> None:
    for service in (PLANNER, COMPOSER):
        assert "retryPolicy" not in service_config(service)
    assert "retryPolicy" in service_config("bos.agent.v1.AgentService")


async def test_what_the_service_itself_says_is_not_repeated(channels: Channels) -> None:
    planner = PlannerDouble(error=Unavailable("The model is down.", reason="MODEL_UNAVAILABLE"))
    async with served(planner) as server:
        with pytest.raises(Unavailable) as caught:
            await answered(method_of(channels, server), PLAN, **OPTIONS)
    assert caught.value.reason == "MODEL_UNAVAILABLE"
    assert len(planner.requests) == 1


@pytest.mark.parametrize("spoken", [False, True])
async def test_stream_is_not_repeated_once_the_service_has_spoken(
    channels: Channels, spoken: bool
) -> None:
    composer = Breaking() if spoken else ComposerDouble(deltas=[], error=Unavailable("busy"))
    messages: list[Any] = []
    async with served(composer) as server:
        stream = streamed(method_of(channels, server, COMPOSER), COMPOSE, **OPTIONS)
        with pytest.raises(Unavailable):
            await heard(stream, messages)
    assert len(messages) == spoken
    assert len(composer.requests) == 1


BUDGETED = MakePlanRequest(question="What?", token_budget=1000)
AWAY, CANCELLED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED


@pytest.mark.parametrize(
    ("code", "drops", "wanted", "is_late", "calls"),
    [
        (AWAY, 2, PLAN, False, 3),
        (CANCELLED, 2, PLAN, False, 3),
        (AWAY, 99, PLAN, False, 3),
        # By then the service may have worked on it, or a proxy has timed out.
        (AWAY, 99, PLAN, True, 1),
        # What it may have spent is not given out again.
        (AWAY, 99, BUDGETED, False, 1),
    ],
)
async def test_call_that_broke_off_at_once_is_repeated_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
    channels: Channels,
    code: grpc.StatusCode,
    drops: int,
    wanted: MakePlanRequest,
    is_late: bool,
    calls: int,
) -> None:
    if is_late:
        monkeypatch.setattr(call_retries, "_AT_ONCE_S", -1.0)
    planner, dropped = PlannerDouble(), Dropping(code, times=drops)
    server, target = await dropping(planner, dropped)
    with nullcontext() if drops < calls else pytest.raises(Unavailable):
        await answered(method_of(channels, target), wanted, **OPTIONS)
    await server.stop(None)
    assert drops - dropped.left + len(planner.requests) == calls


async def test_call_with_a_budget_that_never_left_is_repeated(
    monkeypatch: pytest.MonkeyPatch, channels: Channels
) -> None:
    monkeypatch.setattr(call_retries, "_WAITS_S", (0.05,) * 200)
    planner = PlannerDouble()
    first, target = await dropping(planner, Dropping(grpc.StatusCode.OK, times=0))
    await first.stop(None)
    method = method_of(channels, target)
    with pytest.raises(grpc.aio.AioRpcError):
        await method(BUDGETED)  # no server listens
    asked = asyncio.create_task(answered(method, BUDGETED, **OPTIONS))
    server = grpc.aio.server()
    add_PlannerServiceServicer_to_server(planner, server)
    server.add_insecure_port(target)
    await server.start()
    await asked
    await server.stop(None)
    assert len(planner.requests) == 1


# Services that die at work


@asynccontextmanager
async def line_to(servicer: Any) -> AsyncIterator[Proxy]:
    """A served double behind a proxy that breaks connections as the death of a process does."""
    async with served(servicer) as server:
        port = int(server.rpartition(":")[2])
        line = Proxy(lambda: asyncio.open_connection("127.0.0.1", port))
        listening = await asyncio.start_server(line.serve, "127.0.0.1", 0)
        line.dsn = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        try:
            yield line
        finally:
            await line.close()
            listening.close()


class DyingPlanner(PlannerDouble):
    """Breaks the line while it works on its first calls."""

    line: Any = None
    calls = 0

    async def MakePlan(self, request: MakePlanRequest, context: Any) -> Any:
        self.calls += 1
        if self.calls <= 4:
            self.line.drop()
            await asyncio.Event().wait()
        return await super().MakePlan(request, context)


async def test_planner_that_died_is_called_again_after_any_time(
    monkeypatch: pytest.MonkeyPatch, channels: Channels
) -> None:
    monkeypatch.setattr(call_retries, "_AT_ONCE_S", -1.0)  # as if every call had taken that long
    planner = DyingPlanner()
    async with line_to(planner) as planner.line:
        method = method_of(channels, planner.line.dsn)
        await answered(method, PLAN, **OPTIONS, restart_s=60.0)
    assert planner.calls == 5


class DyingComposer(ComposerDouble):
    """Breaks the line behind the first word of its first answer, once that has arrived."""

    def __init__(self) -> None:
        super().__init__()
        self.line: Any = None
        self.heard = asyncio.Event()

    async def Compose(
        self, request: ComposeRequest, context: Any
    ) -> AsyncIterator[ComposeResponse]:
        async for message in super().Compose(request, context):
            yield message
            if len(self.requests) == 1:
                self._work = asyncio.create_task(self._die())
                await asyncio.Event().wait()

    async def _die(self) -> None:
        await self.heard.wait()
        self.line.drop()


async def test_answer_of_a_composer_that_died_begins_anew(channels: Channels) -> None:
    composer = DyingComposer()
    messages: list[Any] = []
    async with line_to(composer) as composer.line:
        method = method_of(channels, composer.line.dsn, COMPOSER)
        async for message in streamed(method, COMPOSE, **OPTIONS, restart_s=60.0):
            messages.append(message)
            composer.heard.set()
    first, again, *rest = messages
    assert (first is not None, again) == (True, None)
    assert rest[0] == first
    assert rest[-1].WhichOneof("payload") == "output"


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
    agent = await harness.plan(AwayFor("needy", 4))
    async with harness.gateway(restart_wait_s=restart_wait_s) as gateway:
        events = await gateway.events()
    succeeded = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
    assert (result_of(events, "a").status == succeeded) == (calls == 5)
    assert len(agent.inputs) == calls
