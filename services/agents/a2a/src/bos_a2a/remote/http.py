"""HTTP of the SDK through the guarded client."""

from __future__ import annotations

from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import httpx

from bos_errors import BosError
from bos_http import HttpClient
from bos_http.endpoints import Exchange, received_headers, sent_headers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from bos_a2a.settings import A2aServer
    from bos_chassis.telemetry import Telemetry
    from bos_http import HttpPolicy, HttpStream

_METHODS = ("GET", "POST")


class OpenExchange(Exchange):
    """An exchange whose response can be hung up on, which generators of the SDK do late."""

    def __init__(self) -> None:
        super().__init__()
        self._body: _Body | None = None

    def opened(self, body: _Body) -> None:
        """Note the response whose body is arriving."""
        self._body = body

    async def close(self) -> None:
        """Hang up, if a response is still arriving."""
        if self._body is not None:
            await self._body.aclose()


EXCHANGE: ContextVar[OpenExchange | None] = ContextVar("a2a_exchange", default=None)
"""Of the call in progress; the SDK sends in the context of the caller."""


@asynccontextmanager
async def http_client(
    server: A2aServer, policy: HttpPolicy, telemetry: Telemetry
) -> AsyncIterator[httpx.AsyncClient]:
    """Client for the SDK, which reaches the server's origin and nothing else.

    Args:
        server: Settings of the remote agent.
        policy: The operator's, from which limits and certificate authorities are taken.
        telemetry: Of the agent.

    Raises:
        ConfigurationError: the token file cannot be read.
    """
    headers = server.credentials("BOS_A2A_SERVERS")
    reached = server.reached_by(
        policy,
        methods=_METHODS,
        silence_s=max(server.call_timeout_s, server.connect_timeout_s),
        max_bytes=server.max_message_bytes,
    )
    async with (
        HttpClient(reached, telemetry) as guarded,
        httpx.AsyncClient(transport=_Transport(guarded, headers), trust_env=False) as client,
    ):
        yield client


class _Transport(httpx.AsyncBaseTransport):
    """Sends by the guarded client, whose time limits alone count.

    Args:
        client: The guarded client.
        headers: Credentials; the policy lets them reach the server's origin alone.
    """

    def __init__(self, client: HttpClient, headers: Mapping[str, str]) -> None:
        self._client = client
        self._headers = headers

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        exchange = EXCHANGE.get() or OpenExchange()
        exchange.status, exchange.error = 0, None
        opened = self._client.stream(
            request.method,
            str(request.url),
            headers={**sent_headers(request.headers), **self._headers},
            body=await request.aread() or None,
        )
        try:
            stream = await opened.__aenter__()
        except BosError as error:
            exchange.error = error
            raise httpx.ConnectError("no response") from error
        exchange.status = stream.status
        body = _Body(opened, stream, exchange)
        exchange.opened(body)
        return httpx.Response(
            stream.status, headers=received_headers(stream.headers), stream=body, request=request
        )


class _Body(httpx.AsyncByteStream):
    def __init__(
        self,
        opened: AbstractAsyncContextManager[HttpStream],
        stream: HttpStream,
        exchange: Exchange,
    ) -> None:
        self._opened: AbstractAsyncContextManager[HttpStream] | None = opened
        self._stream = stream
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream.pieces:
                yield piece
        except BosError as error:
            self._exchange.error = error
            raise httpx.ReadError("the response broke off") from error

    async def aclose(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.__aexit__(None, None, None)
