import asyncio
from contextvars import copy_context
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from bos_chassis.auth.callers import StaticKey
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.deadlines import remaining_s, set_remaining, timeout_for
from bos_chassis.server import grpc_server
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import (
    ConfigurationError,
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    Unavailable,
)
from bos_testkit.certificates import Authority

SERVICE = "bos.test.v1.EchoService"
LABELS = {"service": "echo", "grpc_service": SERVICE}
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def test_invalid_requests_name_each_field_by_path(start: Any, echo: Any) -> None:
    running = await start()
    request = echo(count=5000)
    request.items.add(name="fine")
    request.items.add(name="x")
    with pytest.raises(InvalidArgument) as caught, translate_rpc_errors():
        await running.stub.get(request)
    assert [v.field for v in caught.value.violations] == ["count", "items[1].name"]
    assert "items[1].name" in caught.value.message


async def test_streamed_requests_are_validated_too(start: Any, echo: Any) -> None:
    running = await start()
    with pytest.raises(InvalidArgument, match="count"), translate_rpc_errors():
        await running.stub.sum(iter([echo(count=1), echo(count=5000)]))


async def test_client_deadline_reaches_the_handler_and_its_calls(start: Any, echo: Any) -> None:
    seen: list[float] = []

    async def inner(request: Any, context: Any) -> Any:
        seen.append(context.time_remaining())
        return request

    running = await start(put=inner)

    async def outer(request: Any, context: Any) -> Any:
        # Asks for more time than its own caller has allowed.
        return await running.stub.put(request, timeout=60)

    front = await start(get=outer)
    await front.stub.get(echo(), timeout=5)
    assert 0 < seen[0] < 5.1  # the header's unit rounds up by a little


def test_time_left_shrinks_while_the_handler_works(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("bos_chassis.deadlines.time.monotonic", lambda: now)

    def handler() -> list[float]:
        nonlocal now
        set_remaining(5)
        timeouts = [timeout_for(60, 30), timeout_for(None, 30), timeout_for(1, 30)]
        now += 4
        timeouts.append(timeout_for(None, 30))
        now += 4
        return [*timeouts, timeout_for(None, 30)]

    assert copy_context().run(handler) == [5, 5, 1, 1, 0]
    assert timeout_for(None, 30) == 30  # outside of a call nothing shrinks


async def test_call_without_deadline_gets_default(start: Any, echo: Any, stub_of: Any) -> None:
    async def remaining(request: Any, context: Any) -> Any:
        return echo(text=str(remaining_s()))

    running = await start(get=remaining, default_deadline_s=7)
    async with grpc.aio.insecure_channel(running.server.address) as plain:
        reply = await stub_of(plain).get(echo())
    assert 6 < float(reply.text) <= 7


async def test_the_server_ends_calls_at_its_maximum(start: Any, echo: Any) -> None:
    async def hang(request: Any, context: Any) -> Any:
        await asyncio.Event().wait()

    async def drip(request: Any, context: Any) -> Any:
        yield echo()
        await asyncio.Event().wait()

    running = await start(get=hang, watch=drip, max_deadline_s=0.05)
    with pytest.raises(DeadlineExceeded, match="deadline of"), translate_rpc_errors():
        await running.stub.get(echo(), timeout=10)
    with pytest.raises(DeadlineExceeded), translate_rpc_errors():
        async for _ in running.stub.watch(echo(), timeout=10):
            pass
    labels = {**LABELS, "grpc_method": "Get", "grpc_code": "DEADLINE_EXCEEDED"}
    assert running.metric("bos_rpc_server_handled_total", **labels) == 1


async def test_a_timeout_inside_the_handler_is_not_the_deadline(start: Any, echo: Any) -> None:
    async def impatient(request: Any, context: Any) -> Any:
        raise TimeoutError

    running = await start(put=impatient)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.stub.put(echo())
    assert caught.value.code() is grpc.StatusCode.INTERNAL


async def test_a_cancelling_client_cancels_the_handler(start: Any, echo: Any) -> None:
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def hang(request: Any, context: Any) -> Any:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    running = await start(get=hang)
    call = running.stub.get(echo())
    await asyncio.wait_for(entered.wait(), 60)
    call.cancel()
    await asyncio.wait_for(cancelled.wait(), 60)
    labels = {**LABELS, "grpc_method": "Get", "grpc_code": "CANCELLED"}
    assert running.metric("bos_rpc_server_handled_total", **labels) == 1


async def test_metrics_count_codes_durations_and_calls_in_flight(start: Any, echo: Any) -> None:
    labels = {**LABELS, "grpc_method": "Get"}

    async def peek(request: Any, context: Any) -> Any:
        if request.text == "fail":
            raise InvalidArgument.field("text", "must not be 'fail'")
        return echo(text=str(running.metric("bos_rpc_server_in_flight", **labels)))

    running = await start(get=peek)
    assert (await running.stub.get(echo())).text == "1.0"
    with pytest.raises(grpc.aio.AioRpcError):
        await running.stub.get(echo(text="fail"))
    handled = "bos_rpc_server_handled_total"
    assert running.metric(handled, **labels, grpc_code="OK") == 1
    assert running.metric(handled, **labels, grpc_code="INVALID_ARGUMENT") == 1
    assert running.metric("bos_rpc_server_duration_seconds_count", **labels) == 2
    assert running.metric("bos_rpc_server_in_flight", **labels) == 0


async def test_codes_set_through_the_context_are_counted(start: Any, echo: Any) -> None:
    async def abort(request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.DATA_LOSS, "gone")

    async def mark(request: Any, context: Any) -> Any:
        context.set_code(grpc.StatusCode.OUT_OF_RANGE)
        return echo()

    running = await start(get=abort, put=mark)
    for call in (running.stub.get, running.stub.put):
        with pytest.raises(grpc.aio.AioRpcError):
            await call(echo())
    handled = "bos_rpc_server_handled_total"
    assert running.metric(handled, **LABELS, grpc_method="Get", grpc_code="DATA_LOSS") == 1
    assert running.metric(handled, **LABELS, grpc_method="Put", grpc_code="OUT_OF_RANGE") == 1


async def test_the_request_log_has_sizes_and_no_values(start: Any, echo: Any) -> None:
    running = await start()
    await running.stub.get(echo(text="secret"))
    (line,) = [entry for entry in running.telemetry.logs if entry["event"] == "call"]
    assert line["grpc_method"] == "Get"
    assert line["grpc_code"] == "OK"
    assert line["received_bytes"] == line["sent_bytes"] == echo(text="secret").ByteSize()
    assert line["trace_id"]
    assert "secret" not in repr(line)


async def test_slow_unary_calls_are_warned_about(start: Any, echo: Any) -> None:
    running = await start(slow_call_s=1e-9)
    await running.stub.get(echo())
    assert [m async for m in running.stub.watch(echo(count=1))]
    levels = {
        e["grpc_method"]: e["log_level"] for e in running.telemetry.logs if "call" in e["event"]
    }
    assert levels == {"Get": "warning", "Watch": "info"}


async def test_unknown_exceptions_are_logged_and_not_shown(start: Any, echo: Any) -> None:
    async def broken(request: Any, context: Any) -> Any:
        raise ZeroDivisionError("password=hunter2")

    running = await start(put=broken)
    with pytest.raises(Internal) as caught, translate_rpc_errors():
        await running.stub.put(echo())
    assert "hunter2" not in caught.value.message
    (line,) = [entry for entry in running.telemetry.logs if entry["event"] == "call"]
    assert line["log_level"] == "error"
    assert isinstance(line["exc_info"], ZeroDivisionError)


async def test_spans_of_caller_and_callee_are_parent_and_child(start: Any, echo: Any) -> None:
    running = await start()
    with running.client_telemetry.tracer.start_as_current_span("question"):
        await running.stub.get(echo())
    spans = {(s.name, s.kind.name): s for s in running.telemetry.spans}
    root = spans["question", "INTERNAL"]
    client = spans[f"{SERVICE}/Get", "CLIENT"]
    server = spans[f"{SERVICE}/Get", "SERVER"]
    assert client.parent.span_id == root.context.span_id
    assert server.parent.span_id == client.context.span_id
    assert {s.context.trace_id for s in spans.values()} == {root.context.trace_id}
    assert server.resource.attributes["service.name"] == "echo"
    assert client.resource.attributes["service.name"] == "caller"


async def test_health_names_each_service_and_follows_set_serving(start: Any) -> None:
    running = await start()
    async with grpc.aio.insecure_channel(running.server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)

        async def status(name: str) -> int:
            return (await health.Check(health_pb2.HealthCheckRequest(service=name))).status

        assert [await status(SERVICE), await status("")] == [SERVING, SERVING]
        await running.server.set_serving(False)
        assert [await status(SERVICE), await status("")] == [NOT_SERVING, NOT_SERVING]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await status("bos.unknown.v1.UnknownService")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_health_port_is_plain_where_certificates_are_required(
    start: Any, tmp_path: Path
) -> None:
    running = await start(tls=Authority(tmp_path / "authority").issue("echo"), health_port=0)
    address = f"127.0.0.1:{running.server.health_port}"
    async with grpc.aio.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(f"/{SERVICE}/Get")(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_health_port_that_is_taken_is_named(start: Any) -> None:
    taken = (await start(health_port=0)).server.health_port
    with pytest.raises(ConfigurationError, match="BOS_SERVER_HEALTH_PORT"):
        await start(health_port=taken)


@pytest.mark.parametrize(
    ("given", "offered"),
    [
        ({}, True),
        ({"reflection": False}, False),
        ({"host": "0.0.0.0", "auth": StaticKey("x" * 16)}, False),
        ({"host": "0.0.0.0", "auth": StaticKey("x" * 16), "reflection": True}, True),
    ],
)
async def test_reflection_is_offered_unless_off_or_on_a_network(
    start: Any, given: Any, offered: bool
) -> None:
    running = await start(**given)
    async with grpc.aio.insecure_channel(running.server.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        if not offered:
            # Without a message: one that is sent when the call is over already fails otherwise.
            assert await stub.ServerReflectionInfo().code() is grpc.StatusCode.UNIMPLEMENTED
            return
        request = reflection_pb2.ServerReflectionRequest(list_services="*")
        reply = await stub.ServerReflectionInfo(iter([request])).read()
        assert SERVICE in {one.name for one in reply.list_services_response.service}


async def test_a_port_in_use_is_a_configuration_error(start: Any) -> None:
    running = await start()
    settings = ServerSettings(port=running.server.port)
    with pytest.raises(ConfigurationError, match="cannot bind") as caught:
        async with grpc_server(settings, [], telemetry=Telemetry.for_tests()):
            pass
    assert caught.value.reason == "BIND_FAILED"


async def test_an_open_port_without_authentication_is_refused() -> None:
    settings = ServerSettings(host="0.0.0.0")
    with pytest.raises(ConfigurationError, match="without authentication"):
        async with grpc_server(settings, [], telemetry=Telemetry.for_tests()):
            pass


async def _until_refused(method: Any, request: Any) -> None:
    while True:  # bounded by the deadline of a call and by the time limit of the test
        await method(request, timeout=5)


async def test_drain_finishes_calls_in_flight_and_refuses_new_ones(
    echo: Any, stub_of: Any, servicer_of: Any
) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def wait(request: Any, context: Any) -> Any:
        entered.set()
        await release.wait()
        return request

    settings = ServerSettings(health_port=0, grace_s=30)
    servicers = [servicer_of(get=wait)]
    server = grpc_server(settings, servicers, telemetry=Telemetry.for_tests())
    running = await server.__aenter__()
    async with grpc.aio.insecure_channel(running.address) as channel:
        stub = stub_of(channel)
        call = asyncio.ensure_future(stub.get(echo(text="in flight")))
        await entered.wait()
        leaving = asyncio.create_task(server.__aexit__(None, None, None))
        await running.draining.wait()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{running.health_port}") as probes:
            health = health_pb2_grpc.HealthStub(probes)
            assert (await health.Check(health_pb2.HealthCheckRequest())).status == NOT_SERVING
        with pytest.raises(Unavailable), translate_rpc_errors():
            await _until_refused(stub.put, echo())
        assert not call.done()
        release.set()
        assert (await call).text == "in flight"
        await asyncio.wait_for(leaving, 60)


async def test_drain_cancels_what_outlives_grace(echo: Any, stub_of: Any, servicer_of: Any) -> None:
    cancelled = asyncio.Event()

    async def unresponsive(request: Any, context: Any) -> Any:
        try:
            yield echo()
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    settings = ServerSettings(grace_s=0.05)
    servicers = [servicer_of(watch=unresponsive)]
    async with (
        asyncio.timeout(60),
        grpc_server(settings, servicers, telemetry=Telemetry.for_tests()) as running,
    ):
        channel = grpc.aio.insecure_channel(running.address)
        call = stub_of(channel).watch(echo())
        await call.read()
    assert cancelled.is_set()
    await channel.close()


async def test_pings_in_a_long_call_do_not_cut_its_connection_off(
    start: Any, echo: Any, stub_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow models say nothing for minutes. A stricter server shows what else would happen."""
    answer = asyncio.Event()

    async def slow(request: Any, context: Any) -> Any:
        await answer.wait()
        return request

    async def address(allowed_ms: int) -> str:
        monkeypatch.setattr("bos_chassis.server._MIN_PING_INTERVAL_MS", allowed_ms)
        return str((await start(put=slow)).server.address)

    def client(target: str) -> grpc.aio.Channel:
        pinging = [("grpc.keepalive_time_ms", 100), ("grpc.http2.max_pings_without_data", 0)]
        return grpc.aio.insecure_channel(target, options=pinging)

    lenient, strict = await address(10), await address(60_000)
    async with client(lenient) as patient:
        call = asyncio.ensure_future(stub_of(patient).put(echo(text="slow")))
        for _ in range(2):  # it outlives two calls that are cut off
            async with client(strict) as cut:
                with pytest.raises(grpc.aio.AioRpcError, match="Too many pings"):
                    await stub_of(cut).put(echo(text="slow"))
        assert not call.done()
        answer.set()
        assert (await call).text == "slow"
