"""HTTP around the MCP server: who calls, and health."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from bos_chassis.auth.callers import set_caller
from bos_chassis.credentials.tls import in_foreign_hands
from bos_errors import Unauthenticated, Unavailable
from bos_webserver import CALLERS, KNOWN

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from bos_chassis.auth.callers import Authenticator

MCP_PATH = "/mcp"
HEALTH_PATH = "/healthz"
_MAX_REQUEST_BYTES = 256 * 1024
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
