"""The endpoint for clients of MCP: streamable HTTP without sessions, and where tokens come from."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse
from starlette.routing import Route

from bos_conversation.mcp import Policy, build_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from bos_client import BosClient
    from bos_client.documents import DocumentsClient
    from bos_protocols.caller import Gateway

MCP_PATH = "/mcp"
METADATA_PATH = "/.well-known/oauth-protected-resource"
_MAX_REQUEST_BYTES = 1024 * 1024


class _HttpCallers:
    """The sender of a request, by its headers."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @property
    def has_documents(self) -> bool:
        return self._gateway.documents_channel is not None

    def bos(self, request: Request) -> BosClient:
        return self._gateway.client(request.headers)

    def documents(self, request: Request) -> DocumentsClient:
        return self._gateway.documents(request.headers)


class McpEndpoint:
    """Routes of the endpoint; every request stands alone, so that any replica can answer it."""

    def __init__(self, gateway: Gateway) -> None:
        settings = gateway.settings
        self._gateway = gateway
        policy = Policy(settings.run_timeout_s, settings.mcp_tool_approvals)
        self._server = build_server(_HttpCallers(gateway), policy)
        self._app = self._server.streamable_http_app(
            streamable_http_path=MCP_PATH,
            stateless_http=True,
            # Not json_response: progress has to reach the client while a run goes on.
            json_response=False,
            max_request_body_size=_MAX_REQUEST_BYTES,
            host=settings.server.host,
        )

    def routes(self) -> list[BaseRoute]:
        """What the endpoint answers."""
        (served,) = [each for each in self._app.routes if isinstance(each, Route)]
        return [
            # GET would hold a stream open for unrequested messages; there are none here.
            Route(MCP_PATH, served.endpoint, methods=["POST"]),
            Route(METADATA_PATH, self._metadata, methods=["GET"]),
            Route(METADATA_PATH + MCP_PATH, self._metadata, methods=["GET"]),
        ]

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """What requests need while the application runs."""
        async with self._server.session_manager.run():
            yield

    async def _metadata(self, request: Request) -> JSONResponse:
        """Who gives tokens for this resource, as RFC 9728 says it."""
        base = self._gateway.public_url(request.headers) or str(request.base_url).rstrip("/")
        path = request.url.path.removeprefix(METADATA_PATH)
        content: dict[str, Any] = {
            "resource": base + path,
            "resource_name": "Bos",
            "bearer_methods_supported": ["header"],
        }
        if issuers := self._gateway.settings.authorization_servers:
            content["authorization_servers"] = list(issuers)
        return JSONResponse(content, headers={"Cache-Control": "max-age=300"})
