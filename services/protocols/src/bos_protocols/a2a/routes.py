"""The HTTP paths of A2A: the card, HTTP+JSON and JSON-RPC."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
from a2a.server.context import ServerCallContext
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from google.protobuf.json_format import MessageToDict
from sse_starlette.sse import EventSourceResponse
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bos_errors import ERROR_DOMAIN
from bos_protocols.a2a.card import REST_PREFIX, RPC_PATH
from bos_protocols.a2a.handler import RECEIVED, UNWORDED

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from starlette.requests import Request

    from bos_errors import BosError
    from bos_protocols.a2a.handler import BosTasks

    Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]

_STATUSES = {
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
_CLIENT_LEFT = 499
_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


def a2a_routes(tasks: BosTasks, heartbeat_s: float) -> list[Route]:
    """The routes of the endpoint.

    Args:
        tasks: What is behind them.
        heartbeat_s: Time between comments on a silent stream.
    """

    async def card(request: Request) -> JSONResponse:
        return JSONResponse(MessageToDict(tasks.card(request.headers)))

    context = _Context()
    found = [(one, one.endpoint) for one in create_jsonrpc_routes(tasks, RPC_PATH, context)]
    found += [
        (one, _with_status(one.endpoint))
        # Tenants would be a path for each: Bos has users.
        for one in create_rest_routes(tasks, context, path_prefix=REST_PREFIX)
        if isinstance(one, Route)
    ]
    return [
        Route(AGENT_CARD_WELL_KNOWN_PATH, card, methods=["GET"]),
        *(
            Route(
                one.path,
                while_its_client_waits(endpoint, heartbeat_s),
                methods=list(one.methods or ()),
            )
            for one, endpoint in found
        ),
    ]


def while_its_client_waits(endpoint: Endpoint, heartbeat_s: float) -> Endpoint:
    """The endpoint; it ends when its client leaves, and its stream has comments while it is silent.

    A stream notices by itself that its client has left; what leads to a mere response does not.
    """

    async def answered(request: Request) -> Response:
        await request.body()  # what comes behind it is that the client leaves
        answering = asyncio.ensure_future(endpoint(request))
        leaving = asyncio.ensure_future(_left(request))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                return Response(status_code=_CLIENT_LEFT)
            response = answering.result()
        finally:
            for one in (answering, leaving):
                one.cancel()
            await asyncio.wait({answering, leaving})
        if isinstance(response, EventSourceResponse):
            response.ping_interval = heartbeat_s
        return response

    return answered


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


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
