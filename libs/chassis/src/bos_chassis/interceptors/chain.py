from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from bos_chassis.interceptors.concern import ServerCall
from bos_chassis.interceptors.concurrency import too_many_calls
from bos_chassis.interceptors.errors import (
    code_of,
    code_set_by_handler,
    message_is_late,
    time_is_up,
)
from bos_chassis.interceptors.methods import Hooks, Method
from bos_errors import InvalidArgument, abort_with

# For a client that does not read to take what became of its call.
_STATUS_S = 10.0


class Chain(grpc.aio.ServerInterceptor):
    """Runs the concerns around every call and turns exceptions into statuses.

    Every kind of RPC is served as one whose requests are a stream. gRPC calls such handlers as soon
    as the headers are there, so that who calls is looked at before a byte of a message is waited
    for, stored or unpacked. One instance belongs to one server.

    Args:
        hooks: What runs around the calls of every method but those in ``special``.
        special: Hooks of single methods, by path as ``/service/method``.
        open_methods: Methods as ``service/method`` that need no credential.
        message_timeout_s: Time between headers and message, and between messages of a stream.
        services_of: Who calls, by the certificate of the connection; None where none is demanded.
        network_of: Where a call comes from, as places are counted.
    """

    def __init__(
        self,
        hooks: Hooks,
        *,
        special: Mapping[str, Hooks] | None = None,
        open_methods: Collection[str] = (),
        message_timeout_s: float,
        services_of: Callable[[Any], frozenset[str] | None] | None = None,
        network_of: Callable[[ServerCall], str] | None = None,
    ) -> None:
        self._hooks = hooks
        self._special = dict(special or {})
        self._open_methods = frozenset(open_methods)
        self._message_timeout_s = message_timeout_s
        self._services_of = services_of
        self._network_of = network_of
        # Only methods with a handler are kept, so the server's own methods are the bound.
        self._methods: dict[str, Method] = {}
        self._running: set[asyncio.Task[Any]] = set()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler for this one call; None (unknown method) stays None."""
        method = self._methods.get(details.method)
        if method is None:
            handler = await continuation(details)
            if handler is None:
                return None
            method = self._methods[details.method] = self._prepared(details.method, handler)
        call = ServerCall(
            method.service,
            method.name,
            details.invocation_metadata or (),
            streaming=method.streams_requests or method.streams_responses,
            is_open=method.is_open,
        )
        run = partial(self._run, method, call)
        if method.streams_responses:
            return grpc.stream_stream_rpc_method_handler(
                run, response_serializer=partial(method.pack, call)
            )
        return grpc.stream_unary_rpc_method_handler(run)

    async def settle(self, timeout_s: float) -> int:
        """Wait for handlers that still clean up; returns how many needed longer than that.

        ``Server.stop`` cancels handlers at the end of its grace but does not wait for them, and
        what they clean up with (pools, channels) is closed right after the server.
        """
        late: Collection[Any] = ()
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=timeout_s)
        for hooks in (self._hooks, *self._special.values()):
            for concern in hooks.concerns:
                concern.close()
        return len(late)

    def _prepared(self, path: str, handler: Any) -> Method:
        hooks = self._special.get(path, self._hooks)
        return Method.of(path, handler, hooks, is_open=path[1:] in self._open_methods)

    async def _run(
        self,
        method: Method,
        call: ServerCall,
        _: Any,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> Any:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        result = None
        try:
            async with asyncio.timeout(self._message_timeout_s) as limit:
                call.limit = limit
                call.time_remaining_s = context.time_remaining()  # None: the client set no deadline
                call.peer = context.peer()
                if self._network_of is not None:
                    call.network = self._network_of(call)
                if self._services_of is not None:
                    call.services = self._services_of(context)
                result = await self._served(method, call, context)
            call.code = code_set_by_handler(context)
        except BaseException as exc:
            # Only our own limit counts as the deadline; a TimeoutError from within is a defect.
            up = isinstance(exc, TimeoutError) and limit.expired()
            # What gRPC says of calls that are gone, before it cancels us.
            gone = isinstance(exc, grpc.aio.InternalError)
            call.error = self._why_ended(call) if up else asyncio.CancelledError() if gone else exc
            call.code = code_of(call.error, call, context)
        finally:
            for end in method.hooks.end:
                end(call)
        error, call.error = call.error, None
        if error is None:
            return result
        try:
            if isinstance(error, Exception) and not isinstance(error, grpc.aio.AbortError):
                await _refuse(context, error)
            raise error
        finally:
            # The traceback of `error` holds this frame; without this the two would keep each other
            # alive, request and response included, until the garbage collector comes by.
            del error

    async def _served(
        self, method: Method, call: ServerCall, context: grpc.aio.ServicerContext[Any, Any]
    ) -> bytes | None:
        """Admit the call and have it handled; the bytes of the response, if it is a single one."""
        assert call.limit is not None
        for begin in method.hooks.begin:
            await begin(call)
        request: Any
        if method.streams_requests:
            call.admitted = True
            request = self._requests(method, call, context)
        else:
            data = await context.read()
            request = _unpacked(method, call, data)
            for check in method.hooks.request:
                check(call, request)
        if call.evicted:  # in the very moment in which its message came
            raise too_many_calls("of this kind")
        allowed = call.timeout_s
        call.limit.reschedule(
            None if allowed is None else asyncio.get_running_loop().time() + allowed
        )
        reply = await method.work(request, context)
        # Packed here: gRPC would do so after the end of the call as we see it, too late for its
        # size. A handler that set a status returns nothing, which gRPC knows how to treat.
        return None if reply is None else method.pack(call, reply)

    async def _requests(
        self, method: Method, call: ServerCall, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        while True:
            try:
                async with asyncio.timeout(self._message_timeout_s) as limit:
                    data = await context.read()
            except TimeoutError:
                if limit.expired():
                    raise message_is_late(self._message_timeout_s) from None
                raise
            if data is grpc.aio.EOF:
                return
            request = _unpacked(method, call, data)
            for check in method.hooks.request:
                check(call, request)
            yield request

    def _why_ended(self, call: ServerCall) -> Exception:
        if call.evicted:
            return too_many_calls("of this kind")
        if not call.admitted:
            return message_is_late(self._message_timeout_s)
        return time_is_up(call.timeout_s)


def _unpacked(method: Method, call: ServerCall, data: Any) -> Any:
    """The message in ``data``.

    Raises:
        InvalidArgument: There is none, it is too large, or it is none of this method's.
    """
    if data is grpc.aio.EOF:
        raise InvalidArgument(
            "The call ended without a message. Send one request.", reason="MESSAGE_MISSING"
        )
    call.received_bytes += len(data)
    for check in method.hooks.arrived:
        check(call, len(data))
    try:
        message = data if method.deserialize is None else method.deserialize(data)
    except (DecodeError, ValueError):
        # The library's own text repeats bytes of the message, which help no caller.
        raise InvalidArgument(
            f"The request cannot be read as a message of {method.service}/{method.name}. "
            "Send what its contract says, as binary protobuf.",
            reason="MESSAGE_MALFORMED",
        ) from None
    call.admitted = True
    return message


async def _refuse(context: grpc.aio.ServicerContext[Any, Any], error: Exception) -> None:
    try:
        async with asyncio.timeout(_STATUS_S):
            await abort_with(context, error)
    except (TimeoutError, grpc.aio.InternalError):
        # The client does not read, or its connection is gone. gRPC drops the call then, with
        # with any content; of an error it would write a traceback.
        raise asyncio.CancelledError from None
