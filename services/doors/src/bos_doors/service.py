"""Start of the doors' HTTP server, for its own process and for the standalone."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos_chassis.channels import Channels
from bos_chassis.telemetry import metrics_server
from bos_doors.app import build_app
from bos_doors.caller import Gateway
from bos_webserver import http_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_chassis.telemetry import Telemetry
    from bos_doors.settings import DoorsSettings

SERVICE_NAME = "doors"
# An answer has to be taken as well.
_ANSWER_SLACK_S = 60.0


@dataclass(frozen=True, slots=True)
class DoorsServer:
    """A running server."""

    service: str
    host: str
    port: int
    metrics_port: int | None

    @property
    def address(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@asynccontextmanager
async def serve(settings: DoorsSettings, telemetry: Telemetry) -> AsyncIterator[DoorsServer]:
    """Serve the doors until the context is left.

    Args:
        settings: Address, limits, where the gateway is.
        telemetry: Log, traces and metrics of this service.

    Raises:
        ConfigurationError: the address cannot be used.
    """
    server = settings.server
    async with AsyncExitStack() as stack:
        channels = await stack.enter_async_context(Channels(telemetry, tls=server.tls))
        documents = settings.documents_target
        gateway = Gateway(
            channels.get(settings.gateway_target),
            settings,
            channels.get(documents) if documents else None,
        )
        app = build_app(gateway, telemetry)
        metrics_port = None
        if server.metrics_port is not None:
            metrics_port = await stack.enter_async_context(
                metrics_server(telemetry.registry, server.metrics_host, server.metrics_port)
            )
        limits = settings.connection_limits(settings.run_timeout_s + _ANSWER_SLACK_S)
        port = await stack.enter_async_context(http_server(app, server, limits, telemetry))
        yield DoorsServer(SERVICE_NAME, server.host, port, metrics_port)
