"""Floods without credentials: of gRPC servers, of HTTP servers, and of any server."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from bos_testkit.raw_http2 import RawConnection, grpc_frame, raw_connection

from .flood_requests import HTTP_FLOODS, half_a_handshake, silent
from .flood_shape import Flood, opened
from .flood_targets import Target

_WATCH = "/grpc.health.v1.Health/Watch"
_CHECK = "/grpc.health.v1.Health/Check"
_REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
# A million empty values of a list in two bytes each, as gRPC takes them: 25 times that in memory.
_BOMB = grpc_frame(b"\x0a\x00" * (1024 * 1024 - 3))
# 64 MB that come as 64 KB.
_PACKED = gzip.compress(bytes(64 * 1024 * 1024), 9)
GZIP_BOMB = b"\x01" + len(_PACKED).to_bytes(4, "big") + _PACKED
_STORM = 100


def _in_turn(connection: RawConnection, methods: Sequence[str]) -> str:
    return methods[connection.calls % len(methods)]


def _any_method(connection: RawConnection, target: Target) -> str:
    return _in_turn(connection, (target.method, *target.open_methods))


async def _watch(connection: RawConnection, _: Target) -> None:
    connection.call(_WATCH, b"", end=False)


async def _check(connection: RawConnection, _: Target) -> None:
    connection.begin(_CHECK)


async def _reflection(connection: RawConnection, _: Target) -> None:
    connection.call(_REFLECTION, b"", end=False)


async def _silent_call(connection: RawConnection, target: Target) -> None:
    connection.begin(target.method)


async def _silent_open(connection: RawConnection, target: Target) -> None:
    connection.begin(_in_turn(connection, target.open_methods))


async def _half_message(connection: RawConnection, target: Target) -> None:
    stream = connection.begin(_any_method(connection, target))
    connection.send_now(stream, grpc_frame(bytes(1000))[:6])


async def _wrong_token(connection: RawConnection, target: Target) -> None:
    connection.begin(target.method, (("authorization", "Bearer eyJhbGciOiJub25lIn0.e30."),))


async def _made_up_key(connection: RawConnection, target: Target) -> None:
    number = id(connection) * 1_000_000 + connection.calls
    key = f"bosk_{number % 16**32:032x}_{'x' * 43}"
    connection.begin(target.method, (("authorization", f"Bearer {key}"),))


async def _garbage(connection: RawConnection, target: Target) -> None:
    connection.call(_any_method(connection, target), b"\xff" * 64)


async def _bomb(connection: RawConnection, target: Target) -> None:
    await connection.send(connection.begin(_any_method(connection, target)), _BOMB, end=True)


async def _gzip_bomb(connection: RawConnection, target: Target) -> None:
    packed = (("grpc-encoding", "gzip"),)
    stream = connection.begin(_any_method(connection, target), packed)
    await connection.send(stream, GZIP_BOMB, end=True)


async def _log_in(connection: RawConnection, target: Target) -> None:
    method = _in_turn(connection, target.open_methods)
    connection.call(method, b"\x0a\x05nobdy\x12\x0awrong-pass")


async def _reset(connection: RawConnection, target: Target) -> None:
    connection.drop(connection.begin(_any_method(connection, target)))


async def _ping(connection: RawConnection, _: Target) -> None:
    connection.ping()


async def _settings(connection: RawConnection, _: Target) -> None:
    connection.change_settings()


async def _half_headers(connection: RawConnection, _: Target) -> None:
    if not connection.calls:
        connection.begin_half()


async def _calls(
    one: Callable[[RawConnection, Target], Awaitable[None]],
    target: Target,
    calls: int,
    sent: Callable[[], None],
) -> None:
    """Keep so many calls under way over one connection."""
    async with raw_connection(target.address, target.tls()) as connection:
        for _ in range(calls):
            await one(connection, target)
        await connection.drain()
        sent()
        while not connection.closed.is_set():
            await connection.until(1, within_s=3600)  # some may have ended meanwhile
            for _ in range(connection.forget()):
                await one(connection, target)
            await connection.drain()


async def _resets(target: Target, calls: int, sent: Callable[[], None]) -> None:
    """Begin so many calls and drop them, and again once the server has looked at them."""
    async with raw_connection(target.address, target.tls()) as connection:
        while not connection.closed.is_set():
            for _ in range(calls):
                await _reset(connection, target)
            last = connection.begin(target.method)
            await connection.drain()
            sent()
            while not connection.is_over(last):
                await connection.until(connection.ended + 1, within_s=3600)
            connection.forget()


async def _frames(
    one: Callable[[RawConnection, Target], Awaitable[None]],
    target: Target,
    _: int,
    sent: Callable[[], None],
) -> None:
    """Send frames as fast as the server looks at them."""
    async with raw_connection(target.address, target.tls()) as connection:
        while not connection.closed.is_set():
            for _ in range(_STORM):
                await one(connection, target)
            connection.change_settings()
            await connection.drain()
            sent()
            await connection.until_agreed(connection.asked)
            connection.forget()


def _of_calls(
    name: str,
    one: Callable[[RawConnection, Target], Awaitable[None]],
    calls: int = 1100,
    *,
    for_open_methods: bool = False,
) -> Flood:
    return Flood(name, partial(_calls, one), calls, for_open_methods, "grpc")


def _of_frames(name: str, one: Callable[[RawConnection, Target], Awaitable[None]]) -> Flood:
    return Flood(name, partial(_frames, one), 1, False, "grpc")


# More calls under way than there are places, where they are held; fewer where each is answered.
_ANSWERED = 100

FLOODS = (
    Flood("silent-connections", silent, 1),
    Flood("half-handshakes", half_a_handshake, 1),
    _of_calls("half-headers", _half_headers, 1),
    _of_calls("watches", _watch),
    _of_calls("silent-checks", _check),
    _of_calls("reflection", _reflection),
    _of_calls("silent-calls", _silent_call),
    _of_calls("silent-open-calls", _silent_open, for_open_methods=True),
    _of_calls("half-messages", _half_message),
    _of_calls("wrong-tokens", _wrong_token, _ANSWERED),
    _of_calls("made-up-keys", _made_up_key, _ANSWERED),
    _of_calls("garbage", _garbage, _ANSWERED),
    _of_calls("bombs", _bomb, 8),
    _of_calls("gzip-bombs", _gzip_bomb, 16),
    _of_calls("open-calls", _log_in, _ANSWERED, for_open_methods=True),
    Flood("resets", _resets, _ANSWERED, False, "grpc"),
    _of_frames("pings", _ping),
    _of_frames("settings", _settings),
    *HTTP_FLOODS,
)
# Not withstood over many connections at once: gRPC queues all calls that it has not passed to
# Python yet in order of arrival, for all senders, also those that have disconnected.
NOT_WITHSTOOD = (_of_frames("endless-resets", _reset),)


def named(name: str) -> Flood:
    """The flood of this name."""
    (found,) = [flood for flood in (*FLOODS, *NOT_WITHSTOOD) if flood.name == name]
    return found


@asynccontextmanager
async def flooding(flood: Flood, target: Target, connections: int) -> AsyncIterator[None]:
    """Keep the flood up; inside of the context all of it has been sent once."""
    each = max(1, flood.calls // connections)
    begun = _Begun(connections)
    flooders = [
        asyncio.create_task(_flood(flood, target, each, partial(begun.sent, number)))
        for number in range(connections)
    ]
    try:
        await asyncio.wait_for(begun.all.wait(), 240)
        yield
    finally:
        for flooder in flooders:
            flooder.cancel()
        failures = await asyncio.gather(*flooders, return_exceptions=True)
    for failure in failures:
        if not isinstance(failure, asyncio.CancelledError):
            raise AssertionError("a flood dried up") from failure


@dataclass
class _Begun:
    missing: set[int]
    all: asyncio.Event

    def __init__(self, connections: int) -> None:
        self.missing = set(range(connections))
        self.all = asyncio.Event()

    def sent(self, number: int) -> None:
        self.missing.discard(number)
        if not self.missing:
            self.all.set()


async def _flood(flood: Flood, target: Target, calls: int, sent: Callable[[], None]) -> None:
    """Keep the flood up over one connection, and come back when it is closed."""
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):  # which errors of TLS are as well
            await flood.keep(target, calls, sent)
        await asyncio.sleep(0)


__all__ = ["FLOODS", "Flood", "flooding", "named", "opened"]
