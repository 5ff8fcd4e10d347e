"""Responses that break a client's limits, the one corpus of all clients, each with its rule."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import Any

LIMIT = 200_000
"""Bytes of a body that the clients of these tests take."""
HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n"


async def forever(head: bytes, piece: bytes) -> AsyncIterator[bytes]:
    """A head, and a piece again and again."""
    yield head
    while True:
        yield piece
        # Lets the client take its turn; the sockets set the pace.
        await asyncio.sleep(0)


async def then_silence(sent: bytes) -> AsyncIterator[bytes]:
    """Some bytes, and nothing more, without hanging up."""
    yield sent
    await asyncio.Event().wait()


def chunk(data: bytes) -> bytes:
    """A chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def noise(size: int) -> bytes:
    """Bytes that do not compress."""
    state, out = 1, bytearray()
    while len(out) < size:
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        out += state.to_bytes(8, "big")
    return bytes(out[:size])


def encoded(coding: bytes, body: bytes) -> bytes:
    """A response whose body claims this encoding."""
    return HEAD + b"Content-Encoding: %s\r\nContent-Length: %d\r\n\r\n%s" % (
        coding,
        len(body),
        body,
    )


def raw_deflate(data: bytes) -> bytes:
    """``data`` deflated without header and checksum."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


@cache
def bomb() -> bytes:
    """50 MB of zeros, gzipped."""
    return gzip.compress(bytes(50_000_000))


REFUSED: list[tuple[str, Callable[[], Any], str]] = [
    (
        "a body without end",
        lambda: forever(HEAD + b"\r\n", b"x" * 65536),
        "response_body_too_large",
    ),
    (
        "chunks without end",
        lambda: forever(CHUNKED + b"\r\n", chunk(b"x" * 1000)),
        "response_body_too_large",
    ),
    (
        "a length beyond the limit, of which nothing is read",
        lambda: then_silence(HEAD + b"Content-Length: 200001\r\n\r\n"),
        "response_body_too_large",
    ),
    (
        "an absurd length",
        lambda: then_silence(HEAD + b"Content-Length: 9223372036854775807\r\n\r\n"),
        "response_body_too_large",
    ),
    ("a gzip bomb", lambda: encoded(b"gzip", bomb()), "response_body_too_large"),
    (
        "a small gzip bomb",
        lambda: encoded(b"gzip", gzip.compress(bytes(LIMIT - 1))),
        "response_compression",
    ),
    (
        "a deflate bomb",
        lambda: encoded(b"deflate", zlib.compress(bytes(LIMIT - 1))),
        "response_compression",
    ),
    (
        "a bare deflate bomb",
        lambda: encoded(b"deflate", raw_deflate(bytes(LIMIT - 1))),
        "response_compression",
    ),
    (
        "a bomb of many members",
        lambda: encoded(b"gzip", gzip.compress(bytes(60_000)) * 40),
        "response_compression",
    ),
    (
        "a bomb without end",
        lambda: forever(
            CHUNKED + b"Content-Encoding: gzip\r\n\r\n", chunk(gzip.compress(bytes(1000)))
        ),
        "response_compression",
    ),
    (
        "empty members without end",
        lambda: forever(
            CHUNKED + b"Content-Encoding: gzip\r\n\r\n", chunk(gzip.compress(b"") * 99)
        ),
        "response_body_too_large",
    ),
    (
        "a bomb inside a bomb",
        lambda: encoded(b"gzip, gzip", gzip.compress(bomb())),
        "response_encoding",
    ),
    ("an encoding that was not requested", lambda: encoded(b"br", b"x"), "response_encoding"),
    ("an invented encoding", lambda: encoded(b"rot13", b"x"), "response_encoding"),
    (
        "two encodings in two headers",
        lambda: encoded(b"gzip\r\nContent-Encoding: deflate", b"x"),
        "response_encoding",
    ),
    (
        "a header larger than all may be",
        lambda: HEAD + b"X: " + b"x" * 4096 + b"\r\nContent-Length: 0\r\n\r\n",
        "response_headers_too_large",
    ),
    (
        "headers that are too large together",
        lambda: HEAD + b"X: " + b"x" * 2048 + b"\r\nY: " + b"y" * 2048 + b"\r\n\r\n",
        "response_headers_too_large",
    ),
    (
        "a header without end",
        lambda: forever(HEAD + b"X: ", b"x" * 1000),
        "response_headers_too_large",
    ),
    (
        "a header name without end",
        lambda: forever(HEAD, b"x" * 1000),
        "response_headers_too_large",
    ),
    (
        "a status line without end",
        lambda: forever(b"HTTP/1.1 200 ", b"x" * 1000),
        "response_headers_too_large",
    ),
]
