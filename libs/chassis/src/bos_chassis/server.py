"""A gRPC server with everything a Bos service needs around its servicers.

Life of a server: bind (or fail clearly), start, SERVING; on leaving NOT_SERVING, a delay in which
load balancers notice, then new calls are refused while those in flight may finish.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc_health.v1 import health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]

from bos_chassis.auth.callers import Authenticator
from bos_chassis.credentials.tls import CertificateFiles, certificate_files, server_credentials
from bos_chassis.interceptors import Health, server_chain
from bos_chassis.metrics import metrics_server
from bos_chassis.settings import ServerSettings, is_loopback, require_loopback
from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError

__all__ = ["GrpcServer", "Servicer", "grpc_server", "health_server"]

_SETTLE_S = 2.0  # for the cleanup of handlers that were cancelled at the end of the grace
_MIN_PING_INTERVAL_MS = 10_000
# What people and programs of theirs ask is far smaller; what services hand on may be larger.
_PUBLIC_REQUEST_BYTES = 2 * 1024 * 1024
_UNSEEN_CALLS = 5000
_PROBES = 64  # connections of probes at once
_OVERALL = ""  # the health protocol's name for the server as a whole


@dataclass(frozen=True, slots=True)
class Servicer:
    """One gRPC service to offer."""

    servicer: object
    add: Callable[[Any, grpc.aio.Server], None]
    """The generated ``add_…Servicer_to_server``."""
    name: str
    """Full name, such as ``bos.planner.v1.PlannerService``."""
    open_methods: tuple[str, ...] = ()
    """Names of methods that need no credential."""
    max_request_bytes: int = _PUBLIC_REQUEST_BYTES
    """Largest request; a larger one is refused before it is unpacked."""
    auth: Authenticator | None = None
    """Authenticator of this service, if it is not that of the others."""
    shown_by: frozenset[str] | None = None
    """With an ``auth``: services that may show a run token beside the gateway and the agent that it
    was made for, by certificate; None: all of them may."""


@dataclass(frozen=True, slots=True)
class GrpcServer:
    """A running server."""

    service: str
    host: str
    port: int
    metrics_port: int | None
    _health: Health = field(repr=False)
    _names: tuple[str, ...] = field(repr=False)
    draining: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    """Set when shutdown begins. Endless streams should watch it and end, or they take all grace."""
    health_port: int | None = None
    """Where health alone is offered, without TLS; None if nowhere."""

    @property
    def address(self) -> str:
        """Address that clients connect to, as ``host:port``."""
        return _join(self.host, self.port)

    async def set_serving(self, serving: bool) -> None:
        """Report health as SERVING or NOT_SERVING, for each service and for the whole."""
        for name in (*self._names, _OVERALL):
            self._health.set_serving(name, serving)


@asynccontextmanager
async def grpc_server(
    settings: ServerSettings,
    servicers: Sequence[Servicer],
    *,
    telemetry: Telemetry,
    auth: Authenticator | None = None,
    from_proxy: Callable[[Mapping[str, str]], str | None] | None = None,
) -> AsyncIterator[GrpcServer]:
    """Serve ``servicers`` until the context is left.

    Args:
        settings: Where, and within which bounds.
        servicers: What to offer.
        telemetry: Of the service.
        auth: Who may call; None for no authentication.
        from_proxy: The client's address, where metadata of a call prove that it comes through a
            trusted proxy, whose traces then go on here; None where they do not.

    Raises:
        ConfigurationError: The address cannot be bound, or is open to the network without
            authentication.
    """
    require_loopback(settings.host, auth is not None)
    names = tuple(one.name for one in servicers)
    opened = [f"{one.name}/{method}" for one in servicers for method in one.open_methods]
    chain = server_chain(
        settings,
        telemetry,
        auth,
        opened,
        of_services={one.name: one.auth for one in servicers if one.auth is not None},
        shown_by={one.name: one.shown_by for one in servicers if one.shown_by is not None},
        request_bytes={one.name: one.max_request_bytes for one in servicers},
        from_proxy=from_proxy,
    )
    # No bound on calls for gRPC to keep: it would refuse health checks too. The chain keeps ours.
    server = grpc.aio.server(interceptors=[chain], options=_options(settings, servicers))
    for one in servicers:
        one.add(one.servicer, server)
    health = Health()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if is_loopback(settings.host) if settings.reflection is None else settings.reflection:
        reflection.enable_server_reflection(
            (*names, "grpc.health.v1.Health", reflection.SERVICE_NAME), server
        )
    log = telemetry.logger("bos.server")
    async with AsyncExitStack() as stack:
        # Ends last, so that probes see NOT_SERVING for as long as it drains.
        health_port = await stack.enter_async_context(health_server(settings, health))
        port = _bind(server, settings, certificate_files(settings.tls, telemetry))
        metrics_port = None
        if settings.metrics_port is not None:
            metrics_port = await stack.enter_async_context(
                metrics_server(telemetry.registry, settings.metrics_host, settings.metrics_port)
            )
        await server.start()
        running = GrpcServer(
            telemetry.service,
            settings.host,
            port,
            metrics_port,
            health,
            names,
            health_port=health_port,
        )
        try:
            await running.set_serving(True)
            log.info("serving", address=running.address, services=list(names))
            yield running
        finally:
            running.draining.set()
            health.end()
            log.info("draining", delay_s=settings.drain_delay_s, grace_s=settings.grace_s)
            try:
                await asyncio.sleep(settings.drain_delay_s)
            finally:
                await server.stop(settings.grace_s)
                late = await chain.settle(_SETTLE_S)
            log.info("stopped", abandoned_calls=late)


@asynccontextmanager
async def health_server(settings: ServerSettings, health: Health) -> AsyncIterator[int | None]:
    """Serve gRPC health alone, in plain text, on ``health_port``; yields the bound port.

    Probes of Kubernetes speak no TLS and show no certificate. Yields None where the port is unset.

    Raises:
        ConfigurationError: The port cannot be bound.
    """
    if settings.health_port is None:
        yield None
        return
    options = [
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", _PROBES),
        ("grpc.max_concurrent_streams", _PROBES),
        ("grpc.max_receive_message_length", 1024),
    ]
    server = grpc.aio.server(options=options)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    address = _join(settings.host, settings.health_port)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0  # as in _bind
    if port == 0:
        raise ConfigurationError(
            f"The health port {address} cannot be bound. Set BOS_SERVER_HEALTH_PORT to a free "
            "port, or to 0 for any.",
            reason="BIND_FAILED",
        )
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


def _bind(
    server: grpc.aio.Server, settings: ServerSettings, certificates: CertificateFiles | None
) -> int:
    address = _join(settings.host, settings.port)
    try:
        if certificates is None:
            port = server.add_insecure_port(address)
        else:
            demanded = settings.tls.client_certificates
            credentials = server_credentials(certificates, client_certificates=demanded)
            port = server.add_secure_port(address, credentials)
    except RuntimeError:
        port = 0  # older versions of the library return 0, newer ones raise; both mean the same
    if port == 0:
        raise ConfigurationError(
            f"The server cannot bind {address}: the port is in use, or the address is not one of "
            "this machine. Set the service's host and port (BOS_<SERVICE>_SERVER__PORT), "
            "or port 0 for any free one.",
            reason="BIND_FAILED",
        )
    return port


def _options(settings: ServerSettings, servicers: Sequence[Servicer]) -> list[tuple[str, Any]]:
    # gRPC holds a message whole before it hands it over. What is a little too large gets there, and
    # gets that from us; one far too large never does.
    largest = 2 * max((one.max_request_bytes for one in servicers), default=_PUBLIC_REQUEST_BYTES)
    return [
        ("grpc.max_receive_message_length", min(settings.max_message_bytes, largest)),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.max_concurrent_streams", settings.max_calls_per_connection),
        # Counted from the first moment on. By itself gRPC counts none, and gives those who never
        # say a word two minutes.
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.server_handshake_timeout_ms", max(1, int(settings.message_timeout_s * 1000))),
        # Calls that wait for the event loop to look at them. With more than that gRPC drops some,
        # of any caller; by itself it does so from a thousand on, which is one connection's.
        # Each takes some 40 KB, also those whose clients have gone.
        ("grpc.server.max_pending_requests", _UNSEEN_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _UNSEEN_CALLS),
        # With port sharing a second server binds the same port without an error and takes every
        # other connection.
        ("grpc.so_reuseport", 0),
        ("grpc.max_connection_age_ms", int(settings.max_connection_age_s * 1000)),
        # As long as a call may take, so that streams stay whole; silent calls end much earlier.
        ("grpc.max_connection_age_grace_ms", int(settings.max_deadline_s * 1000)),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        # Our clients ping every 30 s, also between calls and in calls that say nothing for minutes;
        # stricter servers cut such clients off, with every call that is under way.
        ("grpc.http2.min_ping_interval_without_data_ms", _MIN_PING_INTERVAL_MS),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
