"""Streamable HTTP through the guarded client: the transport that the SDK is given."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.streamable_http import streamable_http_client

from bos_errors import BosError, ConfigurationError
from bos_http import Failure, HttpClient, HttpFailed, HttpRefused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from bos_chassis.telemetry import Telemetry
    from bos_http import HttpPolicy, HttpStream
    from bos_mcp.settings import McpServer

_METHODS = ("GET", "POST", "DELETE")
# What the guarded client sets itself, or sends nowhere.
_OWN = frozenset(
    {
        *("host", "connection", "content-length", "transfer-encoding", "accept-encoding"),
        *("user-agent", "traceparent", "tracestate", "baggage"),
    }
)
_UNSENT = frozenset({Failure.RESOLVE, Failure.CONNECT, Failure.TLS})
_LEAVE_S = 2.0
_FAILED_STATUS = 599
_FAILED_CODE = -32090
_MAX_TOKEN_BYTES = 64 * 1024


@dataclass(slots=True)
class Exchange:
    """What became of the HTTP request of one call; the SDK's errors do not say it."""

    status: int = 0
    """Of the response; 0: none was received."""
    error: BosError | None = None
    """Why there is none, or why it broke off."""

    @property
    def is_unsent(self) -> bool:
        """Whether the request certainly never reached the server."""
        if isinstance(self.error, HttpRefused):
            return not self.error.rule.value.startswith("response_")
        return isinstance(self.error, HttpFailed) and self.error.failure in _UNSENT


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
    headers = _credentials(server)
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
    parts = urlsplit(server.url)
    origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    port = parts.port or (443 if parts.scheme == "https" else 80)
    inside = {origin: tuple(map(ip_network, server.networks))} if server.networks else {}
    return policy.model_copy(
        update={
            "hosts": () if inside else (str(parts.hostname),),
            "ports": (port,),
            "internal_origins": inside,
            "methods": _METHODS,
            "content_types": (),
            "read_timeout_s": max(server.call_timeout_s, server.connect_timeout_s),
            "max_response_bytes": server.max_message_bytes,
            "max_request_bytes": server.max_message_bytes,
        }
    )


def _credentials(server: McpServer) -> dict[str, str]:
    headers = {name: value.get_secret_value() for name, value in server.headers.items()}
    token = server.token.get_secret_value() if server.token else ""
    if server.token_file is not None:
        try:
            with server.token_file.open("rb") as file:
                token = file.read(_MAX_TOKEN_BYTES).decode().strip()
        except (OSError, ValueError):
            raise ConfigurationError(
                "The token of the MCP server cannot be read; correct token_file in BOS_MCP_SERVERS."
            ) from None
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return headers


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
        headers = {
            name: value for name, value in request.headers.items() if name.lower() not in _OWN
        }
        sent = {**headers, **self._headers}
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
        # The body is unpacked already, and its length another than the head says.
        received = [
            (name, value)
            for name, value in stream.headers.items()
            if name.lower() not in ("content-encoding", "content-length", "transfer-encoding")
        ]
        return httpx2.Response(
            stream.status, headers=received, stream=_Body(opened, stream, exchange)
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
