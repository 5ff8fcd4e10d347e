"""MCP client for mcp_db: streamable HTTP with deadline, cancellation and run token."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self

import httpx2
from mcp import MCPError
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    DiscoverResult,
    ServerCapabilities,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pydantic import ValidationError

from bos_chassis.auth.callers import RUN_TOKEN_KEY, current_run_token
from bos_chassis.credentials.tls import CertificateFiles, ClientTls
from bos_chassis.deadlines import timeout_for
from bos_errors import (
    BosError,
    ConfigurationError,
    DeadlineExceeded,
    Internal,
    Unauthenticated,
    Unavailable,
)

Envelope = dict[str, Any]

# The stateless revision of the protocol, which mcp_db supports: no handshake, and disconnecting
# cancels the call.
_PROTOCOL = "2026-07-28"
_CONNECT_TIMEOUT_S = 5.0
_MAX_CONNECTIONS = 64
_PROPAGATOR = TraceContextTextMapPropagator()


class McpClient:
    """Client of one MCP server; an async context manager, shared by concurrent steps.

    Connections are pooled, but each call has an MCP session of its own: sessions are stateless
    here, and a broken connection would fail every call in flight of a shared one.

    Args:
        url: Address of the server, with its path.
        max_reply_bytes: Larger replies fail the call.
        certificates: For ``https``: client certificate and trusted authorities; None: the
            system's.
    """

    def __init__(
        self, url: str, *, max_reply_bytes: int, certificates: CertificateFiles | None = None
    ) -> None:
        self._url = url
        self._tls = None if certificates is None else ClientTls(certificates)
        self._max_reply_bytes = max_reply_bytes
        self._http = httpx2.AsyncClient(
            # The whole call has a deadline; reading a reply takes as long as its query.
            timeout=httpx2.Timeout(None, connect=_CONNECT_TIMEOUT_S),
            limits=httpx2.Limits(
                max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS
            ),
            event_hooks={"request": [_identify], "response": [_refuse_errors]},
            trust_env=False,
            verify=True if self._tls is None else self._tls.context,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._http.aclose()

    async def call(self, tool: str, arguments: Mapping[str, Any], *, timeout_s: float) -> Envelope:
        """Call a tool and return its structured reply; cancelling the call cancels the tool.

        Raises:
            ConfigurationError: the server does not offer the tool, or is not mcp_db.
            DeadlineExceeded: no reply within ``timeout_s`` or the deadline of the step.
            Internal: the reply is no JSON object.
            Unauthenticated: the run token is missing or refused.
            Unavailable: the server is unreachable, or the connection broke.
        """
        time = asyncio.timeout(timeout_for(timeout_s, timeout_s))
        cancelled = _times_cancelled()
        try:
            async with time:
                result = await self._call(tool, dict(arguments))
        except TimeoutError:
            raise _late() from None
        except ExceptionGroup as group:
            # A reply that arrives while the call is being cancelled breaks the SDK's streams, and
            # that error would hide the cancellation or timeout.
            if _times_cancelled() > cancelled:
                raise asyncio.CancelledError from group
            if time.expired():
                raise _late() from group
            raise _translate(_first_leaf(group)) from group
        except (MCPError, ValidationError) as error:
            raise _translate(error) from error
        envelope = result.structured_content
        if isinstance(envelope, dict):
            return envelope
        # mcp_db puts its own failures into the envelope; others come from the MCP server.
        if result.is_error:
            raise _foreign()
        raise Internal(f"The reply of {tool} has no structured content.")

    async def _call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        if self._tls is not None:
            self._tls.look()
        params = CallToolRequestParams(name=tool, arguments=arguments)
        async with (
            streamable_http_client(
                self._url, http_client=self._http, max_sse_event_size=self._max_reply_bytes
            ) as (incoming, outgoing),
            ClientSession(incoming, outgoing) as session,
        ):
            session.adopt(
                DiscoverResult(
                    supported_versions=[_PROTOCOL],
                    capabilities=ServerCapabilities(),
                    result_type="complete",
                    ttl_ms=0,
                    cache_scope="public",
                )
            )
            # Not call_tool, which would first list all tools to check a known schema.
            return await session.send_request(CallToolRequest(params=params), CallToolResult)


async def _identify(request: httpx2.Request) -> None:
    """Add run token and trace context to a request; the SDK sends in the context of the step."""
    token = current_run_token()
    if token is not None:
        request.headers[RUN_TOKEN_KEY] = token
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    request.headers.update(carrier)


async def _refuse_errors(response: httpx2.Response) -> None:
    """Raise typed errors by HTTP status, which the SDK would merge into one error."""
    if response.status_code in (401, 403):
        raise Unauthenticated("The database service did not accept the run token of this step.")
    if response.status_code == 429 or response.status_code >= 500:
        raise _unavailable()


def _times_cancelled() -> int:
    """Number of cancellation requests of the current task."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _first_leaf(group: ExceptionGroup[Exception]) -> Exception:
    first = group.exceptions[0]
    return _first_leaf(first) if isinstance(first, ExceptionGroup) else first


def _translate(error: Exception) -> Exception:
    if isinstance(error, BosError):
        return error
    if isinstance(error, httpx2.HTTPError):
        return _unavailable()
    if isinstance(error, MCPError):
        if error.error.code in (CONNECTION_CLOSED, INTERNAL_ERROR):
            return _unavailable()
        return _foreign()
    if isinstance(error, ValidationError):
        return Internal("The reply of the database service is not valid MCP.")
    return error


def _foreign() -> ConfigurationError:
    return ConfigurationError(
        "The server at BOS_SQL_MCP_URL does not offer the tools of mcp_db. "
        "Set it to the address of mcp_db, with its path (/mcp)."
    )


def _late() -> DeadlineExceeded:
    return DeadlineExceeded("The database service did not answer in time.", reason="MCP_TIMEOUT")


def _unavailable() -> Unavailable:
    return Unavailable("The database service cannot be reached.", reason="MCP_UNAVAILABLE")
