from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import TYPE_CHECKING, Any

import grpc

from bos_chassis.errors import abort_with
from bos_chassis.interceptors.auth import Authentication
from bos_chassis.interceptors.concern import Concern, ServerCall
from bos_chassis.interceptors.deadlines import Deadlines
from bos_chassis.interceptors.errors import code_of, code_set_by_handler, time_is_up
from bos_chassis.interceptors.metrics import Metrics
from bos_chassis.interceptors.request_log import RequestLog
from bos_chassis.interceptors.tracing import Tracing
from bos_chassis.interceptors.validation import Validation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

    from bos_chassis.auth import Authenticator
    from bos_chassis.settings import ServerSettings
    from bos_chassis.telemetry import Telemetry

# Probes and tools: open to anybody, frequent or endless, and nobody wants them in logs or traces.
_INFRASTRUCTURE = ("/grpc.health.", "/grpc.reflection.")


def server_chain(
    settings: ServerSettings,
    telemetry: Telemetry,
    authenticator: Authenticator | None,
    open_methods: Collection[str] = (),
    of_services: Mapping[str, Authenticator] | None = None,
) -> Chain:
    """The concerns of every Bos server, outermost first."""
    return Chain(
        (
            Metrics(telemetry),
            RequestLog(telemetry, settings.slow_call_s),
            Tracing(telemetry),
            Deadlines(settings.default_deadline_s, settings.max_deadline_s),
            Authentication(authenticator, open_methods, of_services),
            Validation(),
        )
    )


class Chain(grpc.aio.ServerInterceptor):
    """Runs the concerns around every call and turns exceptions into statuses.

    Handlers may be coroutines or async generators; all four kinds of RPC are served. One instance
    belongs to one server.
    """

    def __init__(self, concerns: Sequence[Concern]) -> None:
        self._begin = [c.begin for c in concerns if type(c).begin is not Concern.begin]
        self._request = [c.request for c in concerns if type(c).request is not Concern.request]
        self._running: set[asyncio.Task[Any]] = set()
        # Inner concerns end first, as with nested functions.
        self._end = [c.end for c in reversed(concerns) if type(c).end is not Concern.end]

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler for this one call; None (unknown method) stays None."""
        handler = await continuation(details)
        if handler is None or details.method.startswith(_INFRASTRUCTURE):
            return handler
        streaming = handler.request_streaming or handler.response_streaming
        call = ServerCall(details.method, details.invocation_metadata or (), streaming=streaming)
        send = partial(_send, call, handler.response_serializer)
        work: Callable[..., Awaitable[Any]]
        if handler.request_streaming and handler.response_streaming:
            make, work = grpc.stream_stream_rpc_method_handler, _streamed(handler.stream_stream)
        elif handler.response_streaming:
            make, work = grpc.unary_stream_rpc_method_handler, _streamed(handler.unary_stream)
        elif handler.request_streaming:
            make, work = grpc.stream_unary_rpc_method_handler, _replied(handler.stream_unary, send)
        else:
            make, work = grpc.unary_unary_rpc_method_handler, _replied(handler.unary_unary, send)
        return make(
            partial(self._run, call, work),
            request_deserializer=partial(_receive, call, handler.request_deserializer),
            response_serializer=send if handler.response_streaming else None,
        )

    async def settle(self, timeout_s: float) -> int:
        """Wait for handlers that still clean up; returns how many needed longer than that.

        ``Server.stop`` cancels handlers at the end of its grace but does not wait for them, and
        what they clean up with (pools, channels) is closed right after the server.
        """
        if not self._running:
            return 0
        _, late = await asyncio.wait(self._running, timeout=timeout_s)
        return len(late)

    async def _run(
        self,
        call: ServerCall,
        work: Callable[..., Awaitable[Any]],
        request: Any,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> Any:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        call.time_remaining_s = context.time_remaining()  # None if the client set no deadline
        result = None
        try:
            for begin in self._begin:
                await begin(call)
            async with asyncio.timeout(call.timeout_s) as limit:
                if hasattr(request, "__aiter__"):
                    request = self._checked(call, request)
                else:
                    for check in self._request:
                        check(call, request)
                result = await work(request, context)
            call.code = code_set_by_handler(context)
        except BaseException as exc:
            # Only our own limit counts as the deadline; a TimeoutError from within is a defect.
            up = isinstance(exc, TimeoutError) and call.timeout_s is not None and limit.expired()
            call.error = time_is_up(call.timeout_s) if up else exc
            call.code = code_of(call.error, call, context)
        finally:
            for end in self._end:
                end(call)
        error, call.error = call.error, None
        if error is None:
            return result
        try:
            if isinstance(error, Exception) and not isinstance(error, grpc.aio.AbortError):
                await abort_with(context, error)
            raise error
        finally:
            # The traceback of `error` holds this frame; without this the two would keep each other
            # alive, request and response included, until the garbage collector comes by.
            del error

    async def _checked(self, call: ServerCall, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            for check in self._request:
                check(call, request)
            yield request


def _replied(
    handler: Callable[..., Awaitable[Any]], send: Callable[[Any], bytes]
) -> Callable[..., Awaitable[bytes | None]]:
    """A coroutine that returns the reply of ``handler`` as bytes.

    gRPC would serialize after the end of the call as we see it, too late for its size.
    """

    async def run(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> bytes | None:
        reply = await handler(request, context)
        # A handler that set a status returns nothing, which gRPC knows how to treat.
        return None if reply is None else send(reply)

    return run


def _streamed(handler: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
    """A coroutine that sends what the async generator ``handler`` yields.

    gRPC drives coroutine handlers without a generator of its own in between, and the time spent
    waiting for a slow reader falls under our time limit.
    """
    if iscoroutinefunction(handler):
        return handler
    if not isasyncgenfunction(handler):
        raise TypeError(f"{handler!r} must be `async def`; blocking handlers are not served")

    async def run(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        # aclosing: on cancellation the generator's own cleanup runs now, not when it is collected.
        async with aclosing(handler(request, context)) as messages:
            async for message in messages:
                await context.write(message)

    return run


def _receive(call: ServerCall, deserialize: Callable[[bytes], Any] | None, data: bytes) -> Any:
    call.received_bytes += len(data)
    return data if deserialize is None else deserialize(data)


def _send(call: ServerCall, serialize: Callable[[Any], bytes] | None, message: Any) -> bytes:
    data: bytes = message if serialize is None else serialize(message)
    call.sent_bytes += len(data)
    call.sent_messages += 1
    return data
