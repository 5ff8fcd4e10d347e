"""Responses that are read while they arrive."""

from typing import Any

import pytest

from bos_http import HttpRefused, HttpTimedOut
from bos_testkit.internet.bodies import chunk, forever, then_silence

pytestmark = pytest.mark.security


async def read(client: Any, url: str = "http://example.com/events") -> bytes:
    """The whole body, read piece by piece."""
    async with client.stream("GET", url) as response:
        return b"".join([each async for each in response.pieces])


URL = "http://example.com/events"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_first_piece_is_given_before_the_last_is_sent(internet: Any) -> None:
    client = await internet.client_of(
        lambda _: then_silence(HEAD + chunk(b"data: 1\n\n")), read_timeout_s=60
    )
    async with client.stream("POST", URL, body=b"{}") as response:
        assert response.status == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert await anext(response.pieces) == b"data: 1\n\n"


async def test_body_without_an_end_is_refused_at_the_limit(internet: Any) -> None:
    client = await internet.client_of(
        lambda _: forever(HEAD, chunk(b"x" * 1000)), max_response_bytes=50_000
    )
    with pytest.raises(HttpRefused, match="too large"):
        await read(client)


async def test_silence_has_a_limit(internet: Any) -> None:
    client = await internet.client_of(
        lambda _: then_silence(HEAD + chunk(b"x")), read_timeout_s=0.2
    )
    with pytest.raises(HttpTimedOut):
        await read(client)


async def test_redirect_is_the_response_and_is_not_followed(internet: Any, reply: Any) -> None:
    other = await internet.site(address="93.184.216.35", names=["other.example"])
    client = await internet.client_of(
        lambda _: reply("307 Temporary Redirect", Location="http://other.example/")
    )
    async with client.stream("POST", URL, headers={"Authorization": "Bearer t"}) as response:
        assert response.status == 307
    assert other.requests == []


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "file:///etc/passwd"])
async def test_policy_holds_for_streams(internet: Any, url: str) -> None:
    client = await internet.client()
    with pytest.raises(HttpRefused):
        await read(client, url)
