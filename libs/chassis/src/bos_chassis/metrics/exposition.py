"""Exposition of a registry over HTTP, on a port of its own: text, or OpenMetrics with exemplars."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from prometheus_client import start_http_server

from bos_errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from prometheus_client import CollectorRegistry


@asynccontextmanager
async def metrics_server(registry: CollectorRegistry, host: str, port: int) -> AsyncIterator[int]:
    """Serve ``registry`` over HTTP for Prometheus; yields the bound port.

    Raises:
        ConfigurationError: the port cannot be bound.
    """
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError:
        raise ConfigurationError(
            f"The metrics port {host}:{port} cannot be bound. "
            "Set BOS_SERVER_METRICS_PORT to a free port, or to 0 for any."
        ) from None
    try:
        yield server.server_port
    finally:
        # Its loop looks for the request to stop every half second, too long to block ours.
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        thread.join()
