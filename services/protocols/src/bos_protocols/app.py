"""The application: the routes of all protocols, and health."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bos_chassis.telemetry import Telemetry
from bos_protocols.a2a import BosTasks, a2a_routes
from bos_protocols.caller import Gateway
from bos_protocols.mcp import McpEndpoint
from bos_protocols.openai import openai_routes

HEALTH_PATH = "/healthz"


def build_app(gateway: Gateway, telemetry: Telemetry, tasks: BosTasks) -> Starlette:
    """The application; each endpoint adds its routes here.

    Args:
        gateway: Called as the caller of each request.
        telemetry: Of the service.
        tasks: What the A2A endpoint offers, over gRPC as well.
    """
    mcp = McpEndpoint(gateway)
    return Starlette(
        routes=[
            Route(HEALTH_PATH, _healthz, methods=["GET"]),
            *openai_routes(gateway),
            *mcp.routes(),
            *a2a_routes(tasks, gateway.settings.heartbeat_s),
        ],
        lifespan=mcp.lifespan,
    )


async def _healthz(_: Request) -> JSONResponse:
    return JSONResponse({"status": "serving"})
