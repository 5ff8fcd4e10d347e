"""Floods of bytes and of HTTP requests."""

import asyncio
import itertools
from collections.abc import Callable
from functools import partial

from .flood_shape import Flood, opened
from .flood_targets import Target

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
