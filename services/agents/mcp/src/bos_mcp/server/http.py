"""Streamable HTTP through the guarded client: the transport that the SDK is given."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from bos_errors import BosError
from bos_http import HttpClient
from bos_http.endpoints import Exchange, received_headers, sent_headers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from bos_chassis.telemetry import Telemetry
    from bos_http import HttpPolicy, HttpStream
    from bos_mcp.settings import McpServer

_METHODS = ("GET", "POST", "DELETE")
_LEAVE_S = 2.0
_FAILED_STATUS = 599
_FAILED_CODE = -32090

EXCHANGE: ContextVar[Exchange | None] = ContextVar("mcp_exchange", default=None)
"""Of the call in progress; the SDK sends in the context of the caller."""


@asynccontextmanager
async def http_streams(
    server: McpServer, policy: HttpPolicy, telemetry: Telemetry
) -> AsyncIterator[Any]:
    """Streams of a session with the server's endpoint.

    Args:
        server: Its settings.
        policy: The operator's, from which limits and certificate authorities are taken; hosts and
            networks are those of the server alone.
        telemetry: Of the agent.

    Raises:
        ConfigurationError: the token file or a header cannot be used.
    """
    headers = server.credentials("BOS_MCP_SERVERS")
    async with (
        HttpClient(server_policy(server, policy), telemetry) as guarded,
        httpx2.AsyncClient(
            transport=_Transport(guarded, headers), timeout=None, trust_env=False
        ) as client,
        streamable_http_client(
            server.url, http_client=client, max_sse_event_size=server.max_message_bytes
        ) as streams,
    ):
        yield streams


def server_policy(server: McpServer, policy: HttpPolicy) -> HttpPolicy:
    """Policy that reaches the server's endpoint and nothing else."""
    return server.reached_by(
        policy,
        methods=_METHODS,
        silence_s=max(server.call_timeout_s, server.connect_timeout_s),
        max_bytes=server.max_message_bytes,
    )


class _Transport(httpx2.AsyncBaseTransport):
    """Sends by the guarded client; a failure is a response, as it ends one call and no session.

    Args:
        client: The guarded client.
        headers: Credentials; the policy lets them reach the endpoint's origin alone.
    """

    def __init__(self, client: HttpClient, headers: Mapping[str, str]) -> None:
        self._client = client
        self._headers = headers

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = EXCHANGE.get() or Exchange()
        exchange.status, exchange.error = 0, None
        sent = {**sent_headers(request.headers), **self._headers}
        if request.method == "DELETE":
            return await self._ended(str(request.url), sent)
        opened = self._client.stream(
            request.method, str(request.url), headers=sent, body=await request.aread() or None
        )
        try:
            stream = await opened.__aenter__()
        except BosError as error:
            exchange.error = error
            return _failed(error)
        exchange.status = stream.status
        return httpx2.Response(
            stream.status,
            headers=received_headers(stream.headers),
            stream=_Body(opened, stream, exchange),
        )

    async def _ended(self, url: str, headers: Mapping[str, str]) -> httpx2.Response:
        """Take leave of the server, which must not keep the agent from ending."""
        try:
            response = await self._client.request(
                "DELETE", url, headers=headers, timeout_s=_LEAVE_S, follow_redirects=False
            )
        except BosError as error:
            return _failed(error)
        return httpx2.Response(response.status)


class _Body(httpx2.AsyncByteStream):
    def __init__(
        self,
        opened: AbstractAsyncContextManager[HttpStream],
        stream: HttpStream,
        exchange: Exchange,
    ) -> None:
        self._opened = opened
        self._stream = stream
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream.pieces:
                yield piece
        except BosError as error:
            self._exchange.error = error
            # The one kind of error that the SDK takes for the end of one call.
            raise httpx2.StreamError("the response broke off") from error

    async def aclose(self) -> None:
        await self._opened.__aexit__(None, None, None)


def _failed(error: BosError) -> httpx2.Response:
    """A response that the SDK makes the error of the call."""
    body = {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": _FAILED_CODE, "message": error.message},
    }
    return httpx2.Response(
        _FAILED_STATUS,
        headers={"content-type": "application/json"},
        content=json.dumps(body).encode(),
    )
