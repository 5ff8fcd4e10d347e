"""The application: the routes of all doors, and health."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from bos_doors.a2a import a2a_routes
from bos_doors.mcp import McpDoor
from bos_doors.openai import openai_routes

if TYPE_CHECKING:
    from starlette.requests import Request

    from bos_chassis.telemetry import Telemetry
    from bos_doors.a2a import BosTasks
    from bos_doors.caller import Gateway

HEALTH_PATH = "/healthz"


def build_app(gateway: Gateway, telemetry: Telemetry, tasks: BosTasks) -> Starlette:
    """The application; each door adds its routes here.

    Args:
        gateway: Called as whoever calls here.
        telemetry: Of the service.
        tasks: What the A2A door offers, over gRPC as well.
    """
    mcp = McpDoor(gateway)
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
