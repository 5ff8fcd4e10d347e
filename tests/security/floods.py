"""Floods without credentials: of gRPC servers, of HTTP servers, and of any server."""

import asyncio
import gzip
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from bos_testkit.raw_http2 import RawConnection, grpc_frame, raw_connection

from .flood_targets import Target


@dataclass(frozen=True)
class Flood:
    """A flood over any number of connections, without credentials."""

    name: str
    keep: Callable[[Target, int, Callable[[], None]], Awaitable[None]]
    """Keeps so many calls up over one connection until that is closed; says when all were sent."""
    calls: int = 1
    """Under way at once, over all connections; one of each at least."""
    for_open_methods: bool = False
    """Whether it wants methods that need no credential."""
    kind: str = ""
    """Protocol: ``grpc`` or ``http``; empty: for any server."""

    def is_for(self, target: Target) -> bool:
        """Whether it can be let loose on a target."""
        speaks = self.kind in ("", target.kind)
        return speaks and (bool(target.open_methods) or not self.for_open_methods)


@asynccontextmanager
async def opened(
    target: Target, *, bare: bool = False
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection; of TLS, where there is any, only the handshake unless ``bare``."""
    host, _, port = target.address.rpartition(":")
    tls = None if bare else target.tls()
    reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


_CHUNK = b"10000\r\n" + b"[" * 65536 + b"\r\n"


async def _until_closed(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        pass


async def silent(target: Target, _: int, sent: Callable[[], None]) -> None:
    """Connect and say nothing."""
    async with opened(target, bare=True) as (reader, _writer):
        sent()
        await _until_closed(reader)


async def half_a_handshake(target: Target, _: int, sent: Callable[[], None]) -> None:
    """Begin as a client would, of TLS where it is spoken, and stop in the middle."""
    first = b"POST / HT"
    if target.ca_file:
        first = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40)
    elif target.kind == "grpc":
        first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00"
    async with opened(target, bare=True) as (reader, writer):
        writer.write(first)
        await writer.drain()
        sent()
        await _until_closed(reader)


def _head(target: Target, *lines: str, path: str = "", verb: str = "POST") -> bytes:
    host, path = target.address, path or target.method
    return "\r\n".join((f"{verb} {path} HTTP/1.1", f"Host: {host}", *lines, "", "")).encode()


_JSON = "Content-Type: application/json"


def _half_headers(target: Target) -> bytes:
    return _head(target, "X-Slow: ")[:-3]


def _slow_body(target: Target) -> bytes:
    return _head(target, _JSON, "Content-Length: 1000", path=_open(target)) + b"{"


def _garbage(_: Target) -> bytes:
    return b"\x00\xff\r\n" * 16


def _large_header(target: Target) -> bytes:
    return _head(target, "X-Large: " + "x" * 1024 * 1024)


def _nested(target: Target) -> bytes:
    body = b"[" * 60_000
    length = f"Content-Length: {len(body)}"
    return _head(target, _JSON, length, "Connection: close", path=_open(target)) + body


def _gzip_bomb(target: Target) -> bytes:
    lines = (_JSON, "Content-Encoding: gzip", "Content-Length: 1024", "Connection: close")
    return _head(target, *lines, path=_open(target)) + b"\x1f\x8b\x08" + bytes(1021)


def _log_in(target: Target) -> bytes:
    body = b'{"username": "unknown", "password": "wrong password"}'
    length = f"Content-Length: {len(body)}"
    return _head(target, _JSON, length, "Connection: close", path=_open(target)) + body


def _wrong_token(target: Target) -> bytes:
    return _head(target, "Authorization: Bearer eyJhbGciOiJub25lIn0.e30.", "Connection: close")


_numbers = itertools.count(1)


def _made_up_key(target: Target) -> bytes:
    key = f"bosk_{next(_numbers):032x}_{'x' * 43}"
    return _head(target, f"Authorization: Bearer {key}", "Content-Length: 0", "Connection: close")


def _open(target: Target) -> str:
    return (target.open_methods or (target.method,))[0]


async def _sent(
    make: Callable[[Target], bytes], target: Target, _: int, sent: Callable[[], None]
) -> None:
    """Send it over one connection and wait for the end of that."""
    async with opened(target) as (reader, writer):
        writer.write(make(target))
        await writer.drain()
        sent()
        await _until_closed(reader)


async def _endless_body(target: Target, _: int, sent: Callable[[], None]) -> None:
    async with opened(target) as (reader, writer):
        writer.write(_head(target, _JSON, "Transfer-Encoding: chunked", path=_open(target)))
        sent()
        for _chunk in range(64):
            writer.write(_CHUNK)
            await writer.drain()
        await _until_closed(reader)


def _of_bytes(name: str, make: Callable[[Target], bytes]) -> Flood:
    return Flood(f"http-{name}", partial(_sent, make), kind="http")


HTTP_FLOODS = (
    _of_bytes("half-headers", _half_headers),
    _of_bytes("slow-bodies", _slow_body),
    _of_bytes("garbage", _garbage),
    _of_bytes("large-headers", _large_header),
    Flood("http-endless-bodies", _endless_body, kind="http"),
    _of_bytes("nested", _nested),
    _of_bytes("gzip-bombs", _gzip_bomb),
    _of_bytes("wrong-tokens", _wrong_token),
    _of_bytes("made-up-keys", _made_up_key),
    Flood("http-open-calls", partial(_sent, _log_in), for_open_methods=True, kind="http"),
)

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


def named(name: str) -> Flood:
    """The flood of this name."""
    (found,) = [flood for flood in FLOODS if flood.name == name]
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
