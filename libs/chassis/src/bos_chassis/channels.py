"""Long-lived client channels: load balancing, deadlines, identity, traces and safe retries.

A call made through a :class:`Channels` channel gets a deadline (never past that of the server call
it is made in), the run token and the trace context of that call, and is retried by gRPC if its
method is declared free of side effects or idempotent::

    async with Channels(telemetry) as channels:
        planner = PlannerServiceStub(channels.get("dns:///planner:8080"))
        with translate_rpc_errors():
            plan = await planner.MakePlan(request, timeout=20)
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from bos_chassis.auth.callers import RUN_TOKEN_KEY, current_run_token
from bos_chassis.credentials.tls import CertificateFiles, certificate_files, channel_credentials
from bos_chassis.deadlines import timeout_for
from bos_chassis.metrics import exemplar_of
from bos_chassis.settings import TlsSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.tracing import attributes as names
from bos_chassis.tracing.spans import DeferredSpan
from bos_errors import from_rpc_error

_REPEATABLE = (
    descriptor_pb2.MethodOptions.NO_SIDE_EFFECTS,
    descriptor_pb2.MethodOptions.IDEMPOTENT,
)
_RETRY_POLICY = {
    "maxAttempts": 3,
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 3,
    # CANCELLED is how gRPC servers drop calls that arrive just as they stop; gRPC never retries
    # what the caller cancelled. Other codes are the application's to judge, or hopeless.
    "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
}
_OPTIONS = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # New pods and restarted services are found within a second or a few, not the two minutes of the
    # library: the attempts at a step that its agent's death broke off are over sooner than these.
    ("grpc.dns_min_time_between_resolutions_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)

# gRPC may still send a call whose deadline is this very moment, never one whose deadline is past.
_PAST_S = -1.0


_LONGEST_CALL_S = 3600.0  # as servers have it


class Channels:
    """Owns one channel per target (and service); closing it cancels the calls that still run.

    Args:
        telemetry: Of the calling service.
        tls: Certificates; None for plain text. Once they are replaced, new calls use the new ones.
        default_timeout_s: Deadline in seconds of calls that set no timeout.
        max_message_bytes: Largest message sent or received.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        *,
        tls: TlsSettings | None = None,
        default_timeout_s: float = 30,
        max_message_bytes: int = 8 * 1024 * 1024,
    ) -> None:
        self._context = _CallContext(telemetry, default_timeout_s)
        self._certificates = None if tls is None else certificate_files(tls, telemetry)
        self._options = (
            *_OPTIONS,
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_send_message_length", max_message_bytes),
        )
        self._channels: dict[str, _TargetChannel] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closed = True
        while self._channels:
            _, channel = self._channels.popitem()
            await channel.close()

    def get(self, target: str) -> grpc.aio.Channel:
        """The channel to ``target``, always the same one: ``host:port`` or a gRPC target URI.

        It connects with the first call. Do not close it.

        Raises:
            RuntimeError: This object is closed already.
        """
        if self._closed:
            raise RuntimeError("channels are closed")
        channel = self._channels.get(target)
        if channel is None:
            channel = _TargetChannel(target, self._options, self._context, self._certificates)
            self._channels[target] = channel
        return channel


@contextmanager
def translate_rpc_errors() -> Iterator[None]:
    """Raise the peer's error as one of our tree instead of ``grpc.aio.AioRpcError``.

    Raises:
        BosError: What :func:`bos_errors.from_rpc_error` makes of it.
    """
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error


def service_config(service: str) -> str:
    """The gRPC service config (JSON) of ``service``: round robin, and retries where they are safe.

    Safe are the methods whose ``idempotency_level`` says so in the service's descriptor. A service
    that is not in the default descriptor pool gets no retries.
    """
    config: dict[str, Any] = {"loadBalancingConfig": [{"round_robin": {}}]}
    methods = _repeatable_methods(service)
    if methods:
        names = [{"service": service, "method": method} for method in methods]
        config["methodConfig"] = [{"name": names, "retryPolicy": _RETRY_POLICY}]
        # Stops retrying while most calls fail, so that retries cannot keep a service down.
        config["retryThrottling"] = {"maxTokens": 20, "tokenRatio": 0.2}
    return json.dumps(config)


def _repeatable_methods(service: str) -> list[str]:
    try:
        descriptor = descriptor_pool.Default().FindServiceByName(service)
    except KeyError:
        return []
    return [
        method.name
        for method in descriptor.methods
        if method.GetOptions().idempotency_level in _REPEATABLE
    ]


class _CallContext:
    """What each outgoing call takes from where it is made."""

    def __init__(self, telemetry: Telemetry, default_timeout_s: float) -> None:
        self._service = telemetry.service
        self._tracer = telemetry.tracer
        self._metrics = telemetry.rpc_metrics
        self._default_timeout_s = default_timeout_s
        self._propagator = TraceContextTextMapPropagator()

    def timeout(self, wanted_s: float | None) -> float:
        timeout = timeout_for(wanted_s, self._default_timeout_s)
        return timeout if timeout > 0 else _PAST_S

    def span(self, service: str, method: str) -> trace.Span:
        current = trace.get_current_span()
        if isinstance(current, DeferredSpan):
            return current
        if not current.get_span_context().is_valid:
            # Background work: a trace for each of its calls would hold nothing else.
            return trace.INVALID_SPAN
        return self._tracer.start_span(
            f"{service}/{method}",
            kind=trace.SpanKind.CLIENT,
            attributes={
                names.RPC_SYSTEM: "grpc",
                names.RPC_SERVICE: service,
                names.RPC_METHOD: method,
            },
        )

    def metadata(self, given: Any, span: trace.Span) -> tuple[tuple[str, str | bytes], ...]:
        entries = tuple((key, value) for key, value in given or ())
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, trace.set_span_in_context(span))
        token = current_run_token()
        if token is not None and not any(key == RUN_TOKEN_KEY for key, _ in entries):
            carrier[RUN_TOKEN_KEY] = token
        return (*entries, *carrier.items())

    def done(self, service: str, method: str, span: trace.Span, started: float, call: Any) -> None:
        code, seconds = _code_of(call), time.perf_counter() - started
        labels = (self._service, service, method)
        self._metrics.client_handled.labels(*labels, code.name).inc()
        self._metrics.client_duration.labels(*labels).observe(seconds, exemplar_of(span))
        span.set_attribute(names.RPC_GRPC_STATUS_CODE, code.value[0])
        if code is not grpc.StatusCode.OK:
            span.set_status(trace.Status(trace.StatusCode.ERROR))
        span.end()


class _MultiCall:
    """A method of a stub: adds deadline, metadata and span, and returns gRPC's own call object.

    Interceptors would do the same at the price of an extra task and wrapper for every call.
    """

    def __init__(
        self,
        channel: Callable[[], grpc.aio.Channel],
        make: Callable[[grpc.aio.Channel], Any],
        path: str,
        context: _CallContext,
    ) -> None:
        _, self._service, self._method = path.split("/", 2)
        self._channel = channel
        self._make = make
        self._made_for = channel()
        self._inner = make(self._made_for)
        self._context = context

    def __call__(self, request: Any = None, **options: Any) -> Any:
        if (channel := self._channel()) is not self._made_for:  # whose certificate was replaced
            self._made_for, self._inner = channel, self._make(channel)
        context, service, method = self._context, self._service, self._method
        span, started = context.span(service, method), time.perf_counter()
        options["timeout"] = context.timeout(options.get("timeout"))
        options["metadata"] = context.metadata(options.get("metadata"), span)
        try:
            call = self._inner(request, **options)
        except BaseException:
            span.end()
            raise
        call.add_done_callback(lambda call: context.done(service, method, span, started, call))
        return call


class _TargetChannel(grpc.aio.Channel):
    """The channel to one target, split by service where the service config differs.

    A service config is fixed when a channel is made, but only a stub knows its service: so the
    real channel is made with the service's first stub. gRPC shares the connections among channels
    to one target with equal options. Certificates are fixed as well: when they are replaced, new
    calls go over new channels, and the old ones close once their calls have ended.
    """

    def __init__(
        self,
        target: str,
        options: tuple[tuple[str, Any], ...],
        context: _CallContext,
        certificates: CertificateFiles | None,
    ) -> None:
        self._target = target
        self._options = options
        self._context = context
        self._files = certificates
        self._certificates = None if certificates is None else certificates.current()
        self._by_config: dict[str, grpc.aio.Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._multi_call("unary_unary", method, args, kwargs)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._multi_call("unary_stream", method, args, kwargs)

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._multi_call("stream_unary", method, args, kwargs)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._multi_call("stream_stream", method, args, kwargs)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        closing = list(self._closing)
        for task in closing:
            task.cancel()
        while self._by_config:
            _, channel = self._by_config.popitem()
            await channel.close(grace)
        await asyncio.gather(*closing, return_exceptions=True)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._any().get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._any().wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._any().channel_ready()

    def _multi_call(
        self, kind: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _MultiCall:
        config = service_config(method.split("/", 2)[1])

        def make(channel: grpc.aio.Channel) -> Any:
            return getattr(channel, kind)(method, *args, **kwargs)

        return _MultiCall(partial(self._for, config), make, method, self._context)

    def _any(self) -> grpc.aio.Channel:
        return next(iter(self._by_config.values()), None) or self._for(service_config(""))

    def _for(self, config: str) -> grpc.aio.Channel:
        if self._files is not None and self._files.current() is not self._certificates:
            self._certificates = self._files.current()
            self._retire()
        channel = self._by_config.get(config)
        if channel is None:
            options = (*self._options, ("grpc.service_config", config))
            if self._certificates is None:
                channel = grpc.aio.insecure_channel(self._target, options)
            else:
                credentials = channel_credentials(self._certificates)
                channel = grpc.aio.secure_channel(self._target, credentials, options)
            self._by_config[config] = channel
        return channel

    def _retire(self) -> None:
        while self._by_config:
            _, channel = self._by_config.popitem()
            task = asyncio.create_task(_close(channel), name=f"old channel to {self._target}")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


async def _close(channel: grpc.aio.Channel) -> None:
    """Close a channel that gets no new calls: when its calls have ended, or on cancellation."""
    try:
        await channel.close(_LONGEST_CALL_S)
    except asyncio.CancelledError:
        await channel.close()
        raise


def _code_of(call: Any) -> grpc.StatusCode:
    """The status of a finished call, whose ``code()`` is a coroutine that need not wait."""
    coroutine = call.code()
    try:
        coroutine.send(None)
    except StopIteration as stop:
        code: grpc.StatusCode = stop.value
        return code
    finally:
        coroutine.close()
    return grpc.StatusCode.UNKNOWN
