"""HTTP around the MCP server: who calls, health, and a server that leaves signals alone."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from bos_chassis.auth.callers import set_caller
from bos_chassis.credentials.tls import certificate_files, in_foreign_hands, server_context
from bos_errors import ConfigurationError, Unauthenticated, Unavailable
from bos_mcp_db.http_server.connections import CALLERS, KNOWN, protocol_of
from bos_mcp_db.http_server.handshakes import after_handshake

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from mcp.server.mcpserver import MCPServer
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from bos_chassis.auth.callers import Authenticator
    from bos_chassis.settings import ServerSettings
    from bos_chassis.telemetry import Telemetry
    from bos_mcp_db.http_server.connections import ConnectionLimits

MCP_PATH = "/mcp"
HEALTH_PATH = "/healthz"
_MAX_REQUEST_BYTES = 256 * 1024
_MAX_HEADER_BYTES = 32 * 1024
# asyncio accepts as many connections in one turn of its loop as its backlog says. Fewer than one
# address may have, so that a caller is read before a crowd behind it makes it the oldest of them.
_ACCEPTED_AT_ONCE = 64
_BACKLOG = 1024
"""Connections that the kernel keeps until they are accepted."""
_RUN_TOKEN_HEADER = "bos-run-token"  # noqa: S105 - the name of a header
_CREDENTIALS = (_RUN_TOKEN_HEADER, "authorization")


def build_app(server: MCPServer, *, host: str, auth: Authenticator | None) -> ASGIApp:
    """Return the application: ``/mcp`` for known callers, ``/healthz`` for all.

    Every request stands alone (no sessions), so replicas need no affinity. On loopback, Host and
    Origin are checked against rebinding.
    """

    @server.custom_route(HEALTH_PATH, methods=["GET"])  # type: ignore[untyped-decorator]
    async def healthz(_: Request) -> JSONResponse:
        return JSONResponse({"status": "serving"})

    app: ASGIApp = server.streamable_http_app(
        streamable_http_path=MCP_PATH,
        stateless_http=True,
        # Not json_response: in that mode a caller who hangs up would not cancel the query.
        json_response=False,
        max_request_body_size=_MAX_REQUEST_BYTES,
        host=host,
    )
    return app if auth is None else _KnownCallers(app, auth)


class _KnownCallers:
    """Lets only callers pass whom the authenticator knows."""

    def __init__(self, app: ASGIApp, auth: Authenticator) -> None:
        self._app = app
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == HEALTH_PATH:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            if any(len(headers.getlist(name)) > 1 for name in _CREDENTIALS):
                raise Unauthenticated("Send one credential.", reason="CREDENTIAL_AMBIGUOUS")
            principal = await self._auth.authenticate(dict(headers))
            if principal is None:
                raise Unauthenticated("Send the header bos-run-token.", reason="CREDENTIAL_MISSING")
            if in_foreign_hands(principal, scope.get("state", {}).get(CALLERS)):
                raise Unauthenticated(
                    "The run token was not given to the service that shows it.",
                    reason="RUN_TOKEN_INVALID",
                )
        except Unauthenticated as error:
            body = {"error": error.message, "reason": error.reason}
            await JSONResponse(body, status_code=401)(scope, receive, send)
            return
        except Unavailable as error:
            body = {"error": error.message, "reason": error.reason}
            await JSONResponse(body, status_code=503)(scope, receive, send)
            return
        if known := scope.get("state", {}).get(KNOWN):
            known()
        set_caller(principal, headers.get(_RUN_TOKEN_HEADER))
        await self._app(scope, receive, send)


class _GuestServer(uvicorn.Server):
    """uvicorn inside another process: no signal handlers, stopped by its owner."""

    def __init__(
        self, app: ASGIApp, server: ServerSettings, limits: ConnectionLimits, telemetry: Telemetry
    ) -> None:
        protocol: Any = protocol_of(limits, server.tls.trust_domain)
        certificates = certificate_files(server.tls, telemetry)
        if certificates is not None:
            demanded = server.tls.client_certificates
            context = server_context(certificates, client_certificates=demanded)
            protocol = after_handshake(protocol, context)
        config = uvicorn.Config(
            app,
            http=protocol,
            timeout_keep_alive=max(1, round(limits.keep_alive_s)),
            h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
            lifespan="on",
            ws="none",
            log_config=None,
            backlog=_ACCEPTED_AT_ONCE,
            log_level=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=max(1, round(server.grace_s)),
        )
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process."""
        yield

    async def main_loop(self) -> None:
        """Say that requests are accepted, then do the usual maintenance."""
        self.ready.set()
        await super().main_loop()


@asynccontextmanager
async def http_server(
    app: ASGIApp, settings: ServerSettings, limits: ConnectionLimits, telemetry: Telemetry
) -> AsyncIterator[int]:
    """Serve ``app`` until the context is left; yields the port.

    Raises:
        ConfigurationError: the address cannot be bound, or a certificate cannot be used.
    """
    with _bind(settings.host, settings.port) as listener:
        server = _GuestServer(app, settings, limits, telemetry)
        serving = asyncio.create_task(server.serve(sockets=[listener]), name="mcp_db http")
        ready = asyncio.create_task(server.ready.wait(), name="mcp_db ready")
        try:
            await asyncio.wait({ready, serving}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving
                raise RuntimeError("the HTTP server ended while starting")
            listener.listen(_BACKLOG)
            yield listener.getsockname()[1]
        finally:
            ready.cancel()
            server.should_exit = True
            with suppress(asyncio.CancelledError):
                await serving


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only on sockets that name their protocol; with it on,
    # every reply waits 40 ms for the client's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"{host}:{port} cannot be bound ({error.strerror}); set BOS_MCP_DB_SERVER__PORT."
        ) from error
    listener.listen(_ACCEPTED_AT_ONCE)
    listener.setblocking(False)
    return listener
