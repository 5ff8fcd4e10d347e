from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any

import grpc

from bos_chassis.interceptors.concern import Concern, ServerCall

_WRITE_S = 10.0
"""Wait for the client to read the final message; the call is ended after this."""


class Hooks:
    """Interceptors around the calls of a method: the hooks of its concerns, outermost first."""

    __slots__ = ("arrived", "begin", "concerns", "end", "request")

    def __init__(self, concerns: Sequence[Concern]) -> None:
        self.concerns = tuple(concerns)
        self.begin = [c.begin for c in concerns if type(c).begin is not Concern.begin]
        self.arrived = [c.arrived for c in concerns if type(c).arrived is not Concern.arrived]
        self.request = [c.request for c in concerns if type(c).request is not Concern.request]
        # Inner concerns end first, as with nested functions.
        self.end = [c.end for c in reversed(concerns) if type(c).end is not Concern.end]


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the server, made ready to be called."""

    service: str
    name: str
    hooks: Hooks
    is_open: bool
    streams_requests: bool
    streams_responses: bool
    deserialize: Callable[[bytes], Any] | None
    serialize: Callable[[Any], bytes] | None
    work: Callable[[Any, Any], Awaitable[Any]]
    """The handler as a coroutine; of a stream it sends what the handler yields."""

    @classmethod
    def of(cls, path: str, handler: Any, hooks: Hooks, *, is_open: bool) -> Method:
        """The method under ``path``, which gRPC serves with ``handler``.

        Raises:
            TypeError: The handler would block the server.
        """
        _, service, name = path.split("/", 2)
        given = (
            handler.unary_unary
            or handler.unary_stream
            or handler.stream_unary
            or handler.stream_stream
        )
        streams = bool(handler.response_streaming)
        return cls(
            service,
            name,
            hooks,
            is_open,
            bool(handler.request_streaming),
            streams,
            handler.request_deserializer,
            handler.response_serializer,
            _streamed(given) if streams else given,
        )

    def pack(self, call: ServerCall, message: Any) -> bytes:
        """The bytes of a response, which ``call`` counts."""
        data: bytes = message if self.serialize is None else self.serialize(message)
        call.sent_bytes += len(data)
        call.sent_messages += 1
        return data


def _streamed(handler: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
    """A coroutine that sends what the async generator ``handler`` yields.

    gRPC drives coroutine handlers without a generator of its own in between, and the time spent
    waiting for a slow reader falls under our time limit.
    """
    if iscoroutinefunction(handler):
        return lambda request, context: handler(request, _WholeWrites(context))
    if not isasyncgenfunction(handler):
        raise TypeError(f"{handler!r} must be `async def`; blocking handlers are not served")

    async def run(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        # aclosing: on cancellation the generator's own cleanup runs now, not when it is collected.
        async with aclosing(handler(request, context)) as messages:
            write: Callable[[Any], Awaitable[None]] = partial(_write_whole, context)
            async for message in messages:
                await write(message)
                write = context.write

    return run


class _WholeWrites:
    """The context of a handler that writes by itself: each message whole, not only the first."""

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self._context = context
        self.write = partial(_write_whole, context)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


async def _write_whole(context: grpc.aio.ServicerContext[Any, Any], message: Any) -> None:
    """Send a message of a stream; a call that is ended meanwhile waits for it.

    The first one needs that. gRPC sends the headers with it and notes so afterwards: torn in
    between, it sends them again with the status, which its core refuses, and the client would never
    hear of the end.
    """
    writing = asyncio.ensure_future(context.write(message))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait((writing,), timeout=_WRITE_S)
        raise
    finally:
        writing.cancel()
