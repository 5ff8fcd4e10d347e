"""Servers that want to hurt: floods, bombs, drips, broken framing. All real, over real sockets."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from bos_chassis.deadlines import set_remaining
from bos_http import Failure, HttpTimedOut, Rule
from bos_testkit.internet.bodies import (
    CHUNKED,
    HEAD,
    LIMIT,
    REFUSED,
    chunk,
    encoded,
    forever,
    noise,
    raw_deflate,
    then_silence,
)

pytestmark = pytest.mark.security


@pytest.mark.parametrize(("respond", "rule"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
async def test_responses_that_break_a_limit_are_refused_and_hung_up_on(
    internet: Any, respond: Callable[[], Any], rule: str
) -> None:
    reply = respond()
    site = await internet.site(lambda _: reply, names=["example.com"])
    client = await internet.client(
        max_response_bytes=LIMIT, max_response_header_bytes=4096, max_compression_ratio=20
    )
    assert await internet.refusal(client.request("GET", "http://example.com/")) == rule
    if not isinstance(reply, bytes):  # the server was not done
        async with asyncio.timeout(60):
            await site.gone.wait()


async def test_unwanted_body_is_not_read(internet: Any) -> None:
    head = b"HTTP/1.1 202 Accepted\r\nContent-Type: text/plain\r\n\r\n"
    site = await internet.site(lambda _: forever(head, b"x" * 1000), names=["example.com"])
    client = await internet.client(max_response_bytes=LIMIT)
    async with asyncio.timeout(60):
        answer = await client.request("GET", "http://example.com/", read_body=False)
        assert (answer.status, answer.body) == (202, b"")
        await site.gone.wait()


async def test_the_body_of_a_redirect_is_not_waited_for(internet: Any, reply: Any) -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: http://other.example/\r\n\r\n"
    site = await internet.site(lambda _: forever(head, b"x" * 1000), names=["example.com"])
    await internet.site(address="151.101.1.69", names=["other.example"])
    client = await internet.client()
    async with asyncio.timeout(60):
        assert (await client.request("GET", "http://example.com/")).ok
        await site.gone.wait()


FAILED: list[tuple[str, Callable[[], Any], Failure]] = [
    ("nothing", lambda: one(b""), Failure.INTERRUPTED),
    ("not HTTP", lambda: one(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), Failure.PROTOCOL),
    (
        "half a body",
        lambda: one(HEAD + b"Content-Length: 10\r\n\r\nhalf"),
        Failure.INTERRUPTED,
    ),
    ("half a chunk", lambda: one(CHUNKED + b"\r\na\r\nhalf"), Failure.INTERRUPTED),
    ("a broken chunk", lambda: one(CHUNKED + b"\r\nzz\r\n"), Failure.PROTOCOL),
    (
        "half a gzip stream",
        lambda: encoded(b"gzip", gzip.compress(noise(1000))[:-20]),
        Failure.INTERRUPTED,
    ),
    ("no gzip stream", lambda: encoded(b"gzip", b"plain text"), Failure.PROTOCOL),
    (
        "a gzip stream and a rest",
        lambda: encoded(b"gzip", gzip.compress(b"x") + b"rest"),
        Failure.PROTOCOL,
    ),
    (
        "two lengths",
        lambda: one(HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        Failure.PROTOCOL,
    ),
    (
        "too many headers",
        lambda: one(HEAD + b"".join(b"X%d: 1\r\n" % n for n in range(200)) + b"\r\n"),
        Failure.PROTOCOL,
    ),
    (
        "a switch of protocols",
        lambda: one(b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
        Failure.PROTOCOL,
    ),
]


async def one(data: bytes) -> AsyncIterator[bytes]:
    yield data


@pytest.mark.parametrize(
    ("respond", "failure"), [f[1:] for f in FAILED], ids=[f[0] for f in FAILED]
)
async def test_answers_that_are_not_whole_and_valid_fail(
    internet: Any, respond: Callable[[], Any], failure: Failure
) -> None:
    client = await internet.client_of(lambda _: respond(), max_response_bytes=LIMIT)
    assert await internet.refusal(client.request("GET", "http://example.com/")) is failure


SLOW: list[tuple[str, Callable[[], Any], dict[str, float]]] = [
    ("silence", lambda: then_silence(b""), {"read_timeout_s": 0.05}),
    ("half a head", lambda: then_silence(HEAD), {"read_timeout_s": 0.05}),
    (
        "half a body",
        lambda: then_silence(HEAD + b"Content-Length: 9\r\n\r\nhalf"),
        {"read_timeout_s": 0.05},
    ),
    (
        "a body in drips",
        lambda: forever(HEAD + b"\r\n", b"x"),
        {"total_timeout_s": 0.1, "max_response_bytes": 1 << 30},
    ),
    (
        "early hints without end",
        lambda: forever(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        {"total_timeout_s": 0.1},
    ),
    (
        "a chunk extension without end",
        lambda: forever(CHUNKED + b"\r\n1;", b"x" * 100),
        {"total_timeout_s": 0.1},
    ),
]


@pytest.mark.parametrize(("respond", "times"), [s[1:] for s in SLOW], ids=[s[0] for s in SLOW])
async def test_slow_servers_run_into_the_time_limit(
    internet: Any, respond: Callable[[], Any], times: dict[str, float]
) -> None:
    site = await internet.site(lambda _: respond(), names=["example.com"])
    client = await internet.client(**times)
    async with asyncio.timeout(60):
        with pytest.raises(HttpTimedOut):
            await client.request("GET", "http://example.com/")
        await site.gone.wait()


async def test_server_that_never_accepts_meets_the_connect_limit(
    internet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(sock: Any, address: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", never)
    client = await internet.client(connect_timeout_s=0.05)
    async with asyncio.timeout(60):
        with pytest.raises(HttpTimedOut):
            await client.request("GET", "http://93.184.215.14/")


async def test_silent_resolver_meets_the_total_limit(
    internet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(internet.names, "resolve", never)
    client = await internet.client(total_timeout_s=0.05)
    async with asyncio.timeout(60):
        with pytest.raises(HttpTimedOut):
            await client.request("GET", "http://example.com/")


async def test_the_total_limit_covers_all_redirects_together(internet: Any, reply: Any) -> None:
    def respond(_: Any) -> Any:
        return reply("302 F", Location="/x") if len(site.requests) < 3 else then_silence(b"")

    site = await internet.site(respond, names=["example.com"])
    client = await internet.client(total_timeout_s=0.2)
    async with asyncio.timeout(60):
        with pytest.raises(HttpTimedOut):
            await client.request("GET", "http://example.com/")


@pytest.mark.parametrize(("timeout_s", "remaining_s"), [(0.05, None), (30, 0.05), (60, None)])
async def test_the_shortest_of_all_time_limits_counts(
    internet: Any, timeout_s: float, remaining_s: float | None
) -> None:
    client = await internet.client_of(
        lambda _: then_silence(b""), total_timeout_s=0.05 if timeout_s == 60 else 60
    )
    if remaining_s is not None:
        set_remaining(remaining_s)
    async with asyncio.timeout(60):
        with pytest.raises(HttpTimedOut):
            await client.request("GET", "http://example.com/", timeout_s=timeout_s)


async def test_without_time_left_no_server_is_contacted(internet: Any) -> None:
    client = await internet.client_of()
    set_remaining(0)
    with pytest.raises(HttpTimedOut):
        await client.request("GET", "http://example.com/")
    assert (internet.dialled, internet.names.asked) == ([], [])


async def test_cancelling_a_call_hangs_up(internet: Any) -> None:
    site = await internet.site(lambda _: forever(HEAD + b"\r\n", b"x"), names=["example.com"])
    client = await internet.client(max_response_bytes=1 << 30)
    call = asyncio.create_task(client.request("GET", "http://example.com/"))
    async with asyncio.timeout(60):
        await site.reached.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await site.gone.wait()


# What is just within each limit.

WITHIN: list[tuple[str, Callable[[], Any], int]] = [
    ("a body of exactly the limit", lambda: plain(noise(LIMIT)), LIMIT),
    ("in chunks", lambda: CHUNKED + b"\r\n" + chunk(b"x" * LIMIT) + chunk(b""), LIMIT),
    ("until the connection ends", lambda: one(HEAD + b"\r\n" + b"x" * LIMIT), LIMIT),
    (
        "unpacked",
        lambda: encoded(b"gzip", gzip.compress(noise(LIMIT // 2) + b"x" * (LIMIT // 2))),
        LIMIT,
    ),
    ("64 KiB from next to nothing", lambda: encoded(b"gzip", gzip.compress(bytes(65536))), 65536),
    ("gzip by its old name", lambda: encoded(b"x-gzip", gzip.compress(b"hello")), 5),
    ("two members", lambda: encoded(b"GZIP", gzip.compress(b"he") + gzip.compress(b"llo")), 5),
    ("deflate", lambda: encoded(b"deflate", zlib.compress(noise(150_000))), 150_000),
    ("bare deflate", lambda: encoded(b"deflate", raw_deflate(noise(150_000))), 150_000),
    ("no encoding by name", lambda: encoded(b"identity", b"hello"), 5),
    ("nothing, packed", lambda: encoded(b"gzip", b""), 0),
    ("nothing", lambda: plain(b""), 0),
    (
        "headers of nearly the limit",
        lambda: HEAD + b"X: " + b"x" * 4000 + b"\r\nContent-Length: 0\r\n\r\n",
        0,
    ),
    (
        "as many headers as there may be",
        lambda: (
            HEAD + b"".join(b"X%d: 1\r\n" % n for n in range(127)) + b"Content-Length: 0\r\n\r\n"
        ),
        0,
    ),
    ("after early hints", lambda: b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + plain(b"x"), 1),
]


def plain(body: bytes) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize(("respond", "size"), [w[1:] for w in WITHIN], ids=[w[0] for w in WITHIN])
async def test_responses_within_the_limits_arrive_whole(
    internet: Any, respond: Callable[[], Any], size: int
) -> None:
    client = await internet.client_of(
        lambda _: respond(),
        max_response_bytes=LIMIT,
        max_response_header_bytes=4096,
        max_compression_ratio=20,
    )
    response = await client.request("GET", "http://example.com/")
    assert (response.status, len(response.body)) == (200, size)


async def test_head_request_has_no_body_despite_its_headers(internet: Any) -> None:
    head = HEAD + b"Content-Length: 999999999\r\nContent-Encoding: br\r\n\r\n"
    client = await internet.client_of(
        lambda _: head, content_types=("text/html",), max_response_bytes=LIMIT
    )
    response = await client.request("HEAD", "http://example.com/")
    assert (response.body, response.headers["content-length"]) == (b"", "999999999")


@pytest.mark.parametrize(
    ("declared", "allowed", "passes"),
    [
        ("text/html; charset=utf-8", ("text/html",), True),
        ("TEXT/HTML", ("text/*",), True),
        ("application/json", (), True),
        (None, ("text/html",), False),
        ("application/octet-stream", ("text/*",), False),
        ("text/htmlx", ("text/html",), False),
        ("application/x; text/html", ("text/html",), False),
    ],
)
async def test_only_allowed_types_of_bodies_are_taken(
    internet: Any, reply: Any, declared: str | None, allowed: tuple[str, ...], passes: bool
) -> None:
    headers = {} if declared is None else {"Content_Type": declared}
    client = await internet.client_of(lambda _: reply("200 OK", b"x", **headers))
    call = client.request("GET", "http://example.com/", content_types=allowed)
    if passes:
        assert (await call).body == b"x"
    else:
        assert await internet.refusal(call) is Rule.RESPONSE_CONTENT_TYPE


async def test_error_response_may_have_any_media_type(internet: Any, reply: Any) -> None:
    client = await internet.client_of(
        lambda _: reply("503 Busy", b"later", Content_Type="text/html"),
        content_types=("application/json",),
    )
    response = await client.request("GET", "http://example.com/")
    assert (response.status, response.ok, response.text()) == (503, False, "later")
