"""Calls of planner and composer: repeated when they broke off at once, without a word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import grpc
import pytest
from gateway_harness.harness import ComposerDouble, PlannerDouble

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
from bos_chassis.channels import Channels, service_config
from bos_chassis.server import GrpcServer, Servicer, grpc_server
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import Unavailable
from bos_gateway.effects import call_retries
from bos_gateway.effects.call_retries import answered, streamed

PLAN, COMPOSE = MakePlanRequest(question="What?"), ComposeRequest(question="What?")
OPTIONS: dict[str, Any] = {"timeout_s": 20.0, "token": ()}


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


def served(servicer: Any, add: Any, name: str) -> AbstractAsyncContextManager[GrpcServer]:
    telemetry = Telemetry.for_tests(name)
    settings = ServerSettings.load(grace_s=0.1)
    return grpc_server(settings, [Servicer(servicer, add, name)], telemetry=telemetry)


async def dropping(planner: PlannerDouble, drops: Dropping) -> tuple[grpc.aio.Server, str]:
    server = grpc.aio.server(interceptors=[drops])
    add_PlannerServiceServicer_to_server(planner, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"127.0.0.1:{port}"


async def heard(stream: AsyncIterator[ComposeResponse], messages: list[ComposeResponse]) -> None:
    async for message in stream:
        messages.append(message)


def test_channels_repeat_no_call_that_costs_model_calls() -> None:
    for service in ("bos.planner.v1.PlannerService", "bos.composer.v1.ComposerService"):
        assert "retryPolicy" not in service_config(service)
    assert "retryPolicy" in service_config("bos.agent.v1.AgentService")


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED])
async def test_service_that_is_just_being_restarted_is_called_again(code: Any) -> None:
    planner = PlannerDouble()
    server, target = await dropping(planner, Dropping(code, times=2))
    async with Channels(Telemetry.for_tests()) as channels:
        await answered(PlannerServiceStub(channels.get(target)).MakePlan, PLAN, **OPTIONS)
    await server.stop(None)
    assert len(planner.requests) == 1


async def test_call_that_broke_off_late_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """By then the service may have worked on it, or a proxy has timed out."""
    monkeypatch.setattr(call_retries, "_AT_ONCE_S", -1.0)  # as if every call had taken that long
    drops = Dropping(grpc.StatusCode.UNAVAILABLE, times=100)
    server, target = await dropping(PlannerDouble(), drops)
    async with Channels(Telemetry.for_tests()) as channels:
        with pytest.raises(Unavailable):
            await answered(PlannerServiceStub(channels.get(target)).MakePlan, PLAN, **OPTIONS)
    await server.stop(None)
    assert drops.left == 99


async def test_what_the_service_itself_says_is_not_repeated() -> None:
    planner = PlannerDouble(error=Unavailable("The model is down.", reason="MODEL_UNAVAILABLE"))
    name = "bos.planner.v1.PlannerService"
    async with (
        served(planner, add_PlannerServiceServicer_to_server, name) as server,
        Channels(Telemetry.for_tests()) as channels,
    ):
        stub = PlannerServiceStub(channels.get(server.address))
        with pytest.raises(Unavailable) as caught:
            await answered(stub.MakePlan, PLAN, **OPTIONS)
    assert caught.value.reason == "MODEL_UNAVAILABLE"
    assert len(planner.requests) == 1


@pytest.mark.parametrize("spoken", [False, True])
async def test_stream_is_not_repeated_once_the_service_has_spoken(spoken: bool) -> None:
    composer = Breaking() if spoken else ComposerDouble(deltas=[], error=Unavailable("busy"))
    name = "bos.composer.v1.ComposerService"
    messages: list[ComposeResponse] = []
    async with (
        served(composer, add_ComposerServiceServicer_to_server, name) as server,
        Channels(Telemetry.for_tests()) as channels,
    ):
        stub = ComposerServiceStub(channels.get(server.address))
        with pytest.raises(Unavailable):
            await heard(streamed(stub.Compose, COMPOSE, **OPTIONS), messages)
    assert len(messages) == spoken
    assert len(composer.requests) == 1


BUDGETED = MakePlanRequest(question="What?", token_budget=1000)


@pytest.mark.parametrize(("wanted", "calls"), [(PLAN, 3), (BUDGETED, 1)], ids=["free", "budgeted"])
async def test_budget_of_a_call_that_broke_off_is_not_given_out_again(
    wanted: MakePlanRequest, calls: int
) -> None:
    drops = Dropping(grpc.StatusCode.UNAVAILABLE, times=100)
    server, target = await dropping(PlannerDouble(), drops)
    async with Channels(Telemetry.for_tests()) as channels:
        with pytest.raises(Unavailable):
            await answered(PlannerServiceStub(channels.get(target)).MakePlan, wanted, **OPTIONS)
    await server.stop(None)
    assert drops.left == 100 - calls


async def test_call_with_a_budget_that_never_left_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_retries, "_WAITS_S", (0.05,) * 200)
    planner = PlannerDouble()
    first, target = await dropping(planner, Dropping(grpc.StatusCode.OK, times=0))
    await first.stop(None)
    async with Channels(Telemetry.for_tests()) as channels:
        method = PlannerServiceStub(channels.get(target)).MakePlan
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
