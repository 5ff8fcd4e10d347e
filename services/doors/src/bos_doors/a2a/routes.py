"""The HTTP paths of A2A: the card, HTTP+JSON and JSON-RPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
from a2a.server.context import ServerCallContext
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from google.protobuf.json_format import MessageToDict
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bos_doors.a2a.card import REST_PREFIX, RPC_PATH
from bos_doors.a2a.handler import RECEIVED, UNWORDED
from bos_errors import ERROR_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from bos_doors.a2a.handler import BosTasks
    from bos_errors import BosError

    Endpoint = Callable[[Request], Awaitable[Response]]

_STATUSES = {
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


def a2a_routes(tasks: BosTasks) -> list[Route]:
    """The routes of the door."""

    async def card(request: Request) -> JSONResponse:
        return JSONResponse(MessageToDict(tasks.card(request.headers)))

    context = _Context()
    rest = [
        Route(one.path, _with_status(one.endpoint), methods=list(one.methods or ()))
        # Tenants would be a path for each: Bos has users.
        for one in create_rest_routes(tasks, context, path_prefix=REST_PREFIX)
        if isinstance(one, Route)
    ]
    return [
        Route(AGENT_CARD_WELL_KNOWN_PATH, card, methods=["GET"]),
        *create_jsonrpc_routes(tasks, RPC_PATH, context),
        *rest,
    ]


class _Context(ServerCallContextBuilder):
    def build(self, request: Request) -> ServerCallContext:
        def unworded(error: BosError) -> None:
            request.state.unworded = error

        return ServerCallContext(
            state={
                "headers": dict(request.headers),
                RECEIVED: request.headers,
                UNWORDED: unworded,
            }
        )


def _with_status(endpoint: Endpoint) -> Endpoint:
    """The endpoint; errors that A2A leaves to HTTP have HTTP's status."""

    async def answered(request: Request) -> Response:
        response = await endpoint(request)
        error: BosError | None = getattr(request.state, "unworded", None)
        return response if error is None else _refusal(error)

    return answered


def _refusal(error: BosError) -> JSONResponse:
    status = _STATUSES.get(error.code, 500)
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    content = {
        "code": status,
        "status": error.code.name,
        "message": error.message,
        "details": [{"@type": _INFO, "reason": error.reason, "domain": ERROR_DOMAIN}],
    }
    return JSONResponse({"error": content}, status, headers)
