"""Start of the protocols service's HTTP server, for its own process and for the standalone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from bos_chassis.channels import Channels
from bos_chassis.metrics import metrics_server
from bos_chassis.server import grpc_server
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_protocols.a2a import BosTasks, a2a_servicer, at_the_gateway, quiet_sdk
from bos_protocols.app import HEALTH_PATH, build_app
from bos_protocols.caller import Gateway
from bos_protocols.settings import ProtocolsSettings
from bos_webserver import WebServer, http_server

SERVICE_NAME = "protocols"
# An answer has to be taken as well.
_ANSWER_SLACK_S = 60.0


@dataclass(frozen=True, slots=True)
class ProtocolsServer(WebServer):
    """A running server."""

    a2a_address: str = ""
    """Where A2A is offered over gRPC; empty if it is not."""


@asynccontextmanager
async def serve(
    settings: ProtocolsSettings, telemetry: Telemetry
) -> AsyncIterator[ProtocolsServer]:
    """Serve the protocols service until the context is left.

    Args:
        settings: Address, limits, where the gateway is.
        telemetry: Log, traces and metrics of this service.

    Raises:
        ConfigurationError: the address cannot be used.
    """
    quiet_sdk()
    server = settings.server
    async with AsyncExitStack() as stack:
        channels = await stack.enter_async_context(Channels(telemetry, tls=server.tls))
        documents = settings.documents_target
        gateway = Gateway(
            channels.get(settings.gateway_target),
            settings,
            channels.get(documents) if documents else None,
        )
        tasks = BosTasks(gateway, telemetry.logger("bos.protocols.a2a"))
        if settings.a2a_server is not None:
            tasks.grpc_address = await stack.enter_async_context(
                _a2a_over_grpc(settings.a2a_server, tasks, gateway, telemetry)
            )
        app = build_app(gateway, telemetry, tasks)
        metrics_port = None
        if server.metrics_port is not None:
            metrics_port = await stack.enter_async_context(
                metrics_server(telemetry.registry, server.metrics_host, server.metrics_port)
            )
        limits = settings.connection_limits(settings.run_timeout_s + _ANSWER_SLACK_S)
        port = await stack.enter_async_context(
            http_server(app, server, limits, telemetry, untraced=(HEALTH_PATH,))
        )
        yield ProtocolsServer(SERVICE_NAME, server.host, port, metrics_port, tasks.grpc_address)


@asynccontextmanager
async def _a2a_over_grpc(
    own: ServerSettings, tasks: BosTasks, gateway: Gateway, telemetry: Telemetry
) -> AsyncIterator[str]:
    """Offer A2A over gRPC until the context is left; yields the address for clients."""
    within_s = gateway.settings.run_timeout_s + _ANSWER_SLACK_S
    server = own.model_copy(
        # Clients of the protocol set no deadlines, and streams last as long as runs.
        update={
            "default_deadline_s": within_s,
            "max_deadline_s": within_s,
            # Of the process, and offered with its HTTP server.
            "metrics_port": None,
            "health_port": None,
        }
    )
    servicers = [a2a_servicer(tasks)]
    auth = at_the_gateway(gateway)
    async with grpc_server(server, servicers, telemetry=telemetry, auth=auth) as running:
        yield gateway.settings.a2a_grpc_address or running.address
