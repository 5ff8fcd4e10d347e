"""Keys of an issuer over HTTP: by its own configuration, or by a URL of their own."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from token_issuer import Issuer, accepts, opened

from bos_chassis.errors import Unavailable
from bos_http import issuer_document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def openid_issuer(signer: Issuer, **document: str) -> AsyncIterator[str]:
    """An OpenID issuer on a real port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        content: dict[str, Any] = {"keys": [signer.jwk]}
        if b"openid-configuration" in head:
            content = {"issuer": url, "jwks_uri": f"{url}/keys", **document}
        body = json.dumps(content).encode()
        start = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        writer.write(f"{start}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield url


async def test_an_openid_issuer_needs_its_url_alone() -> None:
    issuer = Issuer("RS256")
    async with (
        openid_issuer(issuer) as url,
        opened(issuer_document, issuer=url) as (authenticator, _),
    ):
        assert (await accepts(authenticator, issuer.token(iss=url))).user_id == "u1"


async def test_the_configuration_of_another_issuer_is_not_believed() -> None:
    issuer = Issuer("RS256")
    async with (
        openid_issuer(issuer, issuer="https://evil.example.com") as url,
        opened(issuer_document, issuer=url) as (authenticator, _),
    ):
        with pytest.raises(Unavailable):
            await accepts(authenticator, issuer.token(iss=url))


async def test_keys_can_be_at_a_url_of_their_own() -> None:
    issuer = Issuer()
    async with (
        openid_issuer(issuer) as url,
        opened(issuer_document, jwks_url=f"{url}/keys") as (authenticator, _),
    ):
        assert (await accepts(authenticator, issuer.token())).user_id == "u1"
