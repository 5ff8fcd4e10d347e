"""A tiny echo service, built at run time, on real servers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Any

import grpc
import pytest
from buf.validate import validate_pb2
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bos_chassis.auth.callers import Authenticator
from bos_chassis.channels import Channels
from bos_chassis.server import GrpcServer, Servicer, grpc_server
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry

SERVICE = "bos.test.v1.EchoService"
_F = descriptor_pb2.FieldDescriptorProto


def _file() -> descriptor_pb2.FileDescriptorProto:
    """EchoService: Get (no side effects), Put (side effects), Watch (stream), Sum (stream in)."""
    file = descriptor_pb2.FileDescriptorProto(
        name="bos/test/v1/echo.proto",
        package="bos.test.v1",
        syntax="proto3",
        dependency=["buf/validate/validate.proto"],
    )
    item = file.message_type.add(name="Item")
    name = item.field.add(name="name", number=1, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    name.options.Extensions[validate_pb2.field].string.min_len = 2
    message = file.message_type.add(name="Echo")
    message.field.add(name="text", number=1, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    count = message.field.add(name="count", number=2, type=_F.TYPE_INT32, label=_F.LABEL_OPTIONAL)
    count.options.Extensions[validate_pb2.field].int32.lte = 1000
    message.field.add(
        name="items",
        number=3,
        type=_F.TYPE_MESSAGE,
        label=_F.LABEL_REPEATED,
        type_name=".bos.test.v1.Item",
    )
    service = file.service.add(name="EchoService")
    for method, server, client in (
        ("Get", False, False),
        ("Put", False, False),
        ("Watch", True, False),
        ("Sum", False, True),
    ):
        added = service.method.add(
            name=method,
            input_type=".bos.test.v1.Echo",
            output_type=".bos.test.v1.Echo",
            server_streaming=server,
            client_streaming=client,
        )
        if method in ("Get", "Watch"):
            added.options.idempotency_level = descriptor_pb2.MethodOptions.NO_SIDE_EFFECTS
    return file


def _echo_class() -> Any:
    pool = descriptor_pool.Default()
    try:
        descriptor = pool.FindMessageTypeByName("bos.test.v1.Echo")
    except KeyError:
        pool.Add(_file())
        descriptor = pool.FindMessageTypeByName("bos.test.v1.Echo")
    return message_factory.GetMessageClass(descriptor)


_Echo = _echo_class()


async def _echo(request: Any, context: Any) -> Any:
    return request


async def _count(request: Any, context: Any) -> AsyncIterator[Any]:
    for number in range(request.count):
        yield _Echo(count=number)


async def _sum(requests: Any, context: Any) -> Any:
    return _Echo(count=sum([request.count async for request in requests]))


class EchoStub:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        def method(kind: str, name: str) -> Any:
            return getattr(channel, kind)(
                f"/{SERVICE}/{name}",
                request_serializer=_Echo.SerializeToString,
                response_deserializer=_Echo.FromString,
            )

        self.get = method("unary_unary", "Get")
        self.put = method("unary_unary", "Put")
        self.watch = method("unary_stream", "Watch")
        self.sum = method("stream_unary", "Sum")


def echo_servicer(get: Any = _echo, put: Any = _echo, watch: Any = _count) -> Servicer:
    def add(_: Any, server: grpc.aio.Server) -> None:
        coders = {
            "request_deserializer": _Echo.FromString,
            "response_serializer": _Echo.SerializeToString,
        }
        handlers = {
            "Get": grpc.unary_unary_rpc_method_handler(get, **coders),
            "Put": grpc.unary_unary_rpc_method_handler(put, **coders),
            "Watch": grpc.unary_stream_rpc_method_handler(watch, **coders),
            "Sum": grpc.stream_unary_rpc_method_handler(_sum, **coders),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    return Servicer(object(), add, SERVICE)


@dataclass
class Running:
    """A served echo service and a client of it that has telemetry of its own."""

    server: GrpcServer
    telemetry: Telemetry
    client_telemetry: Telemetry
    channels: Channels
    stub: EchoStub

    def metric(self, name: str, **labels: str) -> float:
        return self.telemetry.registry.get_sample_value(name, labels) or 0.0


Start = Callable[..., Awaitable[Running]]


@pytest.fixture
def echo() -> Any:
    """The message class of all requests and replies."""
    return _Echo


@pytest.fixture
def stub_of() -> type[EchoStub]:
    return EchoStub


@pytest.fixture
def servicer_of() -> Callable[..., Servicer]:
    return echo_servicer


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts echo services; keyword arguments are handlers, ``auth``, or server settings.

    ``offered`` changes the servicer, ``from_proxy`` goes to the server.
    """
    async with AsyncExitStack() as stack:

        async def started(
            *,
            auth: Authenticator | None = None,
            default_timeout_s: float = 10,
            offered: Mapping[str, Any] | None = None,
            from_proxy: Any = None,
            **given: Any,
        ) -> Running:
            handlers = {k: given.pop(k) for k in ("get", "put", "watch") if k in given}
            given.setdefault("grace_s", 1)
            telemetry = Telemetry.for_tests("echo")
            client_telemetry = telemetry.named("caller")
            server = await stack.enter_async_context(
                grpc_server(
                    ServerSettings(**given),
                    [replace(echo_servicer(**handlers), **(offered or {}))],
                    telemetry=telemetry,
                    auth=auth,
                    from_proxy=from_proxy,
                )
            )
            channels = await stack.enter_async_context(
                Channels(client_telemetry, default_timeout_s=default_timeout_s)
            )
            stub = EchoStub(channels.get(server.address))
            return Running(server, telemetry, client_telemetry, channels, stub)

        yield started


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> int:
    """The second at which the clock stands by which tokens are verified."""
    at = int(time.time())

    class Stopped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.fromtimestamp(at, tz)

    monkeypatch.setattr("jwt.api_jwt.datetime", Stopped)
    return at
