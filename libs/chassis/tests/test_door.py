"""The door of a server: who is let in, when, and how many at once."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from bos_chassis.auth.callers import Principal
from bos_chassis.channels import translate_rpc_errors
from bos_errors import (
    DeadlineExceeded,
    InvalidArgument,
    ResourceExhausted,
    Unauthenticated,
)
from bos_testkit.raw_http2 import RawConnection, grpc_frame, raw_connection
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.security

SERVICE = "bos.test.v1.EchoService"
GET, PUT, WATCH, SUM = (f"/{SERVICE}/{name}" for name in ("Get", "Put", "Watch", "Sum"))
GET_LABELS = {"service": "echo", "grpc_service": SERVICE, "grpc_method": "Get"}
CHECK, HEALTH_WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
INVALID_ARGUMENT, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAUTHENTICATED = 3, 4, 8, 16


class ByName:
    """Takes the bearer token for the user's name."""

    async def authenticate(self, metadata: Mapping[str, str]) -> Principal | None:
        name = metadata.get("authorization", "").removeprefix("Bearer ")
        if name == "wrong":
            raise Unauthenticated("Wrong.", reason="API_KEY_INVALID")
        return Principal(name, "", "", "user_token") if name else None


def credential(name: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {name}"),)


class Gate:
    """A handler that everybody waits in."""

    def __init__(self) -> None:
        self.inside = 0
        self.open = asyncio.Event()

    async def __call__(self, request: Any, context: Any) -> Any:
        return await self.wait(request, context)

    async def wait(self, request: Any, context: Any) -> Any:
        self.inside += 1
        try:
            await self.open.wait()
        finally:
            self.inside -= 1
        return request


@pytest.fixture
async def raw(start: Any) -> AsyncIterator[Any]:
    """Opens raw connections to a running server."""
    async with AsyncExitStack() as stack:

        async def opened(running: Any) -> RawConnection:
            return await stack.enter_async_context(raw_connection(running.server.address))

        yield opened


async def checked(running: Any) -> int:
    async with grpc.aio.insecure_channel(running.server.address) as channel:
        reply = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=SERVICE), timeout=60
        )
        return int(reply.status)


def lines(running: Any) -> list[Any]:
    return [line for line in running.telemetry.logs if line["event"] == "call"]


@pytest.mark.parametrize("path", [GET, WATCH, SUM])
async def test_unauthenticated_call_is_refused_before_its_message(
    start: Any, raw: Any, path: str
) -> None:
    running = await start(auth=ByName())
    connection = await raw(running)
    stream = connection.begin(path)
    await connection.until(1)
    assert connection.statuses == {stream: UNAUTHENTICATED}
    assert b"CREDENTIAL_MISSING" not in connection.received[stream], "it is base64 there"
    (line,) = lines(running)
    assert line["grpc_code"] == "UNAUTHENTICATED"
    assert line["received_bytes"] == 0
    labels = {"service": "echo", "grpc_service": SERVICE, "grpc_method": path.rpartition("/")[2]}
    handled = "bos_rpc_server_handled_total"
    assert running.metric(handled, **labels, grpc_code="UNAUTHENTICATED") == 1
    assert running.metric("bos_rpc_server_in_flight", **labels) == 0
    assert not running.telemetry.spans


async def test_silent_unauthenticated_calls_take_no_place(start: Any, raw: Any, echo: Any) -> None:
    running = await start(auth=ByName(), max_concurrent_rpcs=2, max_calls_per_caller=2)
    connection = await raw(running)
    for _ in range(50):
        connection.begin(GET)
    assert (await running.stub.get(echo(text="hi"), metadata=credential("ada"))).text == "hi"
    await connection.until(50)


async def test_a_caller_has_places_of_its_own(start: Any, echo: Any) -> None:
    gate = Gate()
    running = await start(auth=ByName(), put=gate.wait, max_calls_per_caller=2)
    waiting = [
        asyncio.ensure_future(running.stub.put(echo(), metadata=credential("eve"), timeout=60))
        for _ in range(2)
    ]
    await eventually(lambda: gate.inside == 2)
    with pytest.raises(ResourceExhausted) as caught, translate_rpc_errors():
        await running.stub.get(echo(), metadata=credential("eve"))
    assert caught.value.reason == "TOO_MANY_CALLS"
    assert caught.value.retry_after_s == 1.0
    assert (await running.stub.get(echo(text="hi"), metadata=credential("ada"))).text == "hi"
    gate.open.set()
    await asyncio.gather(*waiting)
    await running.stub.get(echo(), metadata=credential("eve"))


async def test_all_callers_together_have_a_bound(start: Any, echo: Any) -> None:
    gate = Gate()
    running = await start(auth=ByName(), put=gate.wait, max_concurrent_rpcs=2)
    waiting = [
        asyncio.ensure_future(running.stub.put(echo(), metadata=credential(name), timeout=60))
        for name in ("ada", "eve")
    ]
    await eventually(lambda: gate.inside == 2)
    with pytest.raises(ResourceExhausted, match="of all callers"), translate_rpc_errors():
        await running.stub.get(echo(), metadata=credential("bob"))
    assert await checked(running) == SERVING
    gate.open.set()
    await asyncio.gather(*waiting)
    await running.stub.get(echo(), metadata=credential("bob"))


async def test_without_authentication_a_connection_has_places(
    start: Any, raw: Any, echo: Any
) -> None:
    running = await start(max_calls_per_caller=2)
    connection = await raw(running)
    for _ in range(5):
        connection.begin(GET)
    await connection.until(3)
    assert set(connection.statuses.values()) == {RESOURCE_EXHAUSTED}
    assert (await running.stub.get(echo(text="hi"))).text == "hi"


async def test_open_methods_and_known_callers_have_places_apart(
    start: Any, raw: Any, echo: Any
) -> None:
    gate = Gate()
    running = await start(
        auth=ByName(),
        put=gate.wait,
        offered={"open_methods": ("Put",)},
        max_calls_per_open_method=3,
        max_concurrent_rpcs=1,
    )
    connection = await raw(running)
    silent = [connection.begin(PUT) for _ in range(10)]
    await connection.until(7)
    # The newest of the flood have the places; a new caller displaces one of them.
    assert connection.statuses == dict.fromkeys(silent[:7], RESOURCE_EXHAUSTED)
    honest = asyncio.ensure_future(running.stub.put(echo(text="in"), timeout=60))
    await eventually(lambda: gate.inside == 1)
    assert (await running.stub.get(echo(text="hi"), metadata=credential("ada"))).text == "hi"
    for _ in range(10):
        connection.begin(PUT)
    await connection.until(18)
    gate.open.set()
    assert (await honest).text == "in"


async def test_a_message_has_to_come_in_time(start: Any, raw: Any, echo: Any) -> None:
    running = await start(auth=ByName(), offered={"open_methods": ("Put",)}, message_timeout_s=0.2)
    connection = await raw(running)
    streams = [connection.begin(PUT), connection.begin(GET, credential("ada"))]
    half = connection.begin(GET, credential("ada"))
    connection.send_now(half, grpc_frame(bytes(100))[:50])
    await connection.until(3)
    assert connection.statuses == dict.fromkeys([*streams, half], DEADLINE_EXCEEDED)
    assert {line["grpc_code"] for line in lines(running)} == {"DEADLINE_EXCEEDED"}


async def test_a_handler_has_more_time_than_its_message(start: Any, echo: Any) -> None:
    gate = Gate()
    running = await start(get=gate.wait, message_timeout_s=2)
    call = asyncio.ensure_future(running.stub.get(echo(text="slow"), timeout=60))
    loop = asyncio.get_running_loop()
    loop.call_later(3.0, gate.open.set)
    assert (await call).text == "slow"


def _hold_up_the_loop() -> None:
    """Past a deadline of 0.1 s, which is noticed while the next message is under way."""
    time.sleep(0.2)


async def _yields(request: Any, context: Any) -> AsyncIterator[Any]:
    _hold_up_the_loop()
    yield request
    await asyncio.Event().wait()


async def _writes(request: Any, context: Any) -> None:
    _hold_up_the_loop()
    await context.write(request)
    await asyncio.Event().wait()


@pytest.mark.parametrize("watch", [_yields, _writes])
async def test_stream_ended_with_its_first_message_has_a_status(
    start: Any, echo: Any, watch: Any
) -> None:
    running = await start(watch=watch, max_deadline_s=0.1)
    messages = running.stub.watch(echo(text="hi"), timeout=60)
    assert (await messages.read()).text == "hi"
    with pytest.raises(DeadlineExceeded, match=r"deadline of 0\.1 s"), translate_rpc_errors():
        await messages.read()


async def test_a_stream_of_requests_may_pause_so_long(start: Any, echo: Any) -> None:
    running = await start(message_timeout_s=0.5)

    async def endless() -> AsyncIterator[Any]:
        yield echo(count=1)
        await asyncio.Event().wait()

    with pytest.raises(DeadlineExceeded) as caught, translate_rpc_errors():
        await running.stub.sum(endless(), timeout=60)
    assert caught.value.reason == "MESSAGE_TIMEOUT"


async def test_too_large_a_request_is_refused_unread(
    start: Any, echo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await start(offered={"max_request_bytes": 1000})
    fits, large = echo(text="x" * 990), echo(text="x" * 1500)
    assert (await running.stub.get(fits)).text == fits.text
    with pytest.raises(InvalidArgument, match="takes 1000") as caught, translate_rpc_errors():
        await running.stub.get(large)
    assert caught.value.reason == "REQUEST_TOO_LARGE"
    with pytest.raises(InvalidArgument), translate_rpc_errors():
        await running.stub.sum(iter([fits, large]))
    # Far too large: the library does not even hold it.
    with pytest.raises(ResourceExhausted, match="too large"), translate_rpc_errors():
        await running.stub.get(echo(text="x" * 5000))
    assert {line["log_level"] for line in lines(running)} == {"info"}


async def test_a_callers_requests_have_so_many_bytes_together(start: Any, echo: Any) -> None:
    gate = Gate()
    running = await start(auth=ByName(), put=gate.wait, max_request_bytes_per_caller=3000)
    large = echo(text="x" * 2000)
    first = asyncio.ensure_future(running.stub.put(large, metadata=credential("eve"), timeout=60))
    await eventually(lambda: gate.inside == 1)
    with pytest.raises(ResourceExhausted, match="large requests"), translate_rpc_errors():
        await running.stub.get(large, metadata=credential("eve"))
    await running.stub.get(echo(text="small"), metadata=credential("eve"))
    await running.stub.get(large, metadata=credential("ada"))
    gate.open.set()
    await first
    await running.stub.get(large, metadata=credential("eve"))


async def test_garbage_is_the_clients_fault_and_one_line(
    start: Any, raw: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    running = await start(offered={"open_methods": ("Get", "Sum")}, auth=ByName())
    connection = await raw(running)
    streams = [connection.call(path, b"\xff" * 40) for path in (GET, SUM)]
    # A group that is never closed, a size beyond the message, an empty call.
    streams += [connection.call(GET, message) for message in (b"\x0b", b"\x0a\x7f")]
    streams.append(connection.begin(GET, end=True))
    await connection.until(5)
    assert connection.statuses == dict.fromkeys(streams, INVALID_ARGUMENT)
    await eventually(lambda: len(lines(running)) == 5)
    assert {line["log_level"] for line in lines(running)} == {"info"}
    assert not any("exc_info" in line for line in lines(running))
    assert "Traceback" not in "".join(capfd.readouterr())


async def test_two_credentials_of_a_kind_are_ambiguous(start: Any, echo: Any) -> None:
    running = await start(auth=ByName())
    tokens = (("bos-run-token", "a"), ("bos-run-token", "a"))
    for twice in ((*credential("ada"), *credential("wrong")), (*credential("ada"), *tokens)):
        with pytest.raises(Unauthenticated) as caught, translate_rpc_errors():
            await running.stub.get(echo(), metadata=twice)
        assert caught.value.reason == "CREDENTIAL_AMBIGUOUS"


async def test_a_check_is_answered_in_every_flood(start: Any, raw: Any) -> None:
    running = await start(max_concurrent_rpcs=1, max_calls_per_caller=1)
    connection = await raw(running)
    for _ in range(1100):
        connection.begin(CHECK)
        connection.begin(GET)
    await connection.drain()
    assert await checked(running) == SERVING
    # Of the silent checks only so many are kept.
    await eventually(lambda: RESOURCE_EXHAUSTED in connection.statuses.values())
    assert await checked(running) == SERVING


@pytest.mark.parametrize(("path", "places"), [(HEALTH_WATCH, 64), (REFLECTION, 16)])
async def test_watches_and_reflection_are_few_and_take_no_place(
    start: Any, raw: Any, echo: Any, path: str, places: int
) -> None:
    running = await start(max_concurrent_rpcs=1, message_timeout_s=60)
    connection = await raw(running)
    for _ in range(200):
        connection.call(path, b"", end=False)
    await connection.until(200 - places)
    assert set(connection.statuses.values()) == {RESOURCE_EXHAUSTED}
    assert (await running.stub.get(echo(text="hi"))).text == "hi"
    async with grpc.aio.insecure_channel(running.server.address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = reflection_pb2.ServerReflectionRequest(list_services="*")
        reply = await stub.ServerReflectionInfo(iter([asked])).read()
        assert reply.list_services_response.service
        watch.cancel()


async def test_unknown_network_with_most_calls_is_displaced_first(start: Any, raw: Any) -> None:
    running = await start(
        auth=ByName(),
        offered={"open_methods": ("Get",)},
        max_calls_per_open_method=4,
        from_proxy=lambda metadata: metadata.get("forwarded"),
    )
    honest = await raw(running)
    before = honest.begin(GET, (("forwarded", "2001:db8:0:1::1"),))
    await eventually(lambda: running.metric("bos_rpc_server_in_flight", **GET_LABELS) == 1)
    flood = []
    for number in range(8):  # each call over a connection and from an address of its own
        one = await raw(running)
        flood.append(one)
        one.begin(GET, (("forwarded", f"2001:db8::{number + 1}"),))
    await eventually(lambda: sum(one.ended for one in flood) == 5)
    assert not honest.is_over(before)
    honest.send_now(before, grpc_frame(b""), end=True)
    await honest.until(1)
    assert honest.statuses == {before: 0}


async def test_a_health_watcher_that_does_not_read_delays_no_call(start: Any, raw: Any) -> None:
    running = await start()
    deaf = await raw(running)
    deaf.take_nothing()
    stream = deaf.call(HEALTH_WATCH, b"", end=False)
    async with grpc.aio.insecure_channel(running.server.address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(), timeout=60
        )
        assert (await watch.read()).status == SERVING
        await running.server.set_serving(False)
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
    assert not deaf.is_over(stream)


async def test_refused_unauthenticated_calls_are_sampled_in_the_log(
    start: Any, raw: Any, echo: Any
) -> None:
    running = await start(auth=ByName())
    connection = await raw(running)
    for _ in range(300):
        connection.begin(GET)
    await connection.until(300)
    assert 0 < len(lines(running)) <= 40, "20 in an interval, of which there may be two"
    for _ in range(30):
        await running.stub.get(echo(), metadata=credential("ada"))
    known = [line for line in lines(running) if line["grpc_code"] == "OK"]
    assert len(known) == 30


async def test_of_open_methods_calls_there_are_samples_too(start: Any, echo: Any) -> None:
    running = await start(auth=ByName(), offered={"open_methods": ("Get",)})
    for _ in range(100):
        await running.stub.get(echo())
    assert 0 < len(lines(running)) <= 80
