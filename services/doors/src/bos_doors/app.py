"""The application: the routes of all doors, and health."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from bos_doors.mcp import McpDoor

if TYPE_CHECKING:
    from starlette.requests import Request

    from bos_chassis.telemetry import Telemetry
    from bos_doors.caller import Gateway

HEALTH_PATH = "/healthz"


def build_app(gateway: Gateway, telemetry: Telemetry) -> Starlette:
    """The application; each door adds its routes here."""
    mcp = McpDoor(gateway)
    return Starlette(
        routes=[Route(HEALTH_PATH, _healthz, methods=["GET"]), *mcp.routes()],
        lifespan=mcp.lifespan,
    )


async def _healthz(_: Request) -> JSONResponse:
    return JSONResponse({"status": "serving"})
