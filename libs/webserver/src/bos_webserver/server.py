"""An HTTP server for ASGI applications inside another process, with bounds on its connections."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import uvicorn

from bos_chassis.credentials.tls import certificate_files, server_context
from bos_chassis.interceptors import Health
from bos_chassis.server import health_server
from bos_chassis.tracing.http import TracedApp
from bos_errors import ConfigurationError
from bos_webserver.connections import protocol_of
from bos_webserver.handshakes import after_handshake
from bos_webserver.metrics import Measured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator

    from starlette.types import ASGIApp

    from bos_chassis.settings import ServerSettings
    from bos_chassis.telemetry import Telemetry
    from bos_webserver.connections import ConnectionLimits

_MAX_HEADER_BYTES = 32 * 1024
# asyncio accepts as many connections in one turn of its loop as its backlog says. Fewer than one
# address may have, so that a caller is read before a flood behind it makes it the oldest of them.
_ACCEPTED_AT_ONCE = 64
_BACKLOG = 1024
"""Connections that the kernel keeps until they are accepted."""


@dataclass(frozen=True, slots=True)
class WebServer:
    """A running server: what is served, and where."""

    service: str
    host: str
    port: int
    metrics_port: int | None

    @property
    def address(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _GuestServer(uvicorn.Server):
    """uvicorn inside another process: no signal handlers, stopped by its owner."""

    def __init__(
        self,
        app: ASGIApp,
        server: ServerSettings,
        limits: ConnectionLimits,
        telemetry: Telemetry,
        untraced: Collection[str] | None,
    ) -> None:
        measured: ASGIApp = Measured(app, telemetry.service, telemetry.registry)
        if untraced is not None:
            # Around what is measured, whose exemplars name the trace.
            measured = TracedApp(measured, telemetry, untraced=untraced)
        protocol: Any = protocol_of(limits, server.tls.trust_domain)
        certificates = certificate_files(server.tls, telemetry)
        if certificates is not None:
            demanded = server.tls.client_certificates
            context = server_context(certificates, client_certificates=demanded)
            protocol = after_handshake(protocol, context)
        config = uvicorn.Config(
            measured,
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
    app: ASGIApp,
    settings: ServerSettings,
    limits: ConnectionLimits,
    telemetry: Telemetry,
    *,
    untraced: Collection[str] | None = None,
) -> AsyncIterator[int]:
    """Serve ``app`` until the context is left; yields the port. Health is gRPC's, on its own port.

    Args:
        app: The application; its lifespan is run.
        settings: Address, certificates, time for requests in flight at the end.
        limits: Of connections.
        telemetry: Of the service.
        untraced: Paths whose requests have no spans, such as health checks; None: no request has
            one. Callers are trusted to name the trace.

    Raises:
        ConfigurationError: the address cannot be bound, or a certificate cannot be used.
    """
    name, health = telemetry.service, Health()
    async with AsyncExitStack() as stack:
        # Ends last, so that probes see NOT_SERVING for as long as requests are in flight.
        await stack.enter_async_context(health_server(settings, health))
        listener = stack.enter_context(_bind(settings.host, settings.port, name))
        server = _GuestServer(app, settings, limits, telemetry, untraced)
        serving = asyncio.create_task(server.serve(sockets=[listener]), name=f"{name} http")
        ready = asyncio.create_task(server.ready.wait(), name=f"{name} ready")
        try:
            await asyncio.wait({ready, serving}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving
                raise RuntimeError("the HTTP server ended while starting")
            listener.listen(_BACKLOG)
            health.set_serving("", True)
            yield listener.getsockname()[1]
        finally:
            health.end()
            ready.cancel()
            try:
                await asyncio.sleep(settings.drain_delay_s)
            finally:
                server.should_exit = True
                with suppress(asyncio.CancelledError):
                    await serving


def _bind(host: str, port: int, service: str) -> socket.socket:
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
            f"{host}:{port} cannot be bound ({error.strerror}); "
            f"set BOS_{service.upper()}_SERVER__PORT."
        ) from error
    listener.listen(_ACCEPTED_AT_ONCE)
    listener.setblocking(False)
    return listener
