from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from bos_chassis.auth.callers import Authenticator
from bos_chassis.client_address import client_address, network
from bos_chassis.credentials.tls import calling_services
from bos_chassis.interceptors.auth import Authentication
from bos_chassis.interceptors.chain import Chain
from bos_chassis.interceptors.concern import ServerCall
from bos_chassis.interceptors.concurrency import ConcurrencyLimiter, MethodShedder, RequestSizes
from bos_chassis.interceptors.deadlines import Deadlines
from bos_chassis.interceptors.methods import Hooks
from bos_chassis.interceptors.metrics import Metrics
from bos_chassis.interceptors.request_log import RequestLog
from bos_chassis.interceptors.tracing import Tracing
from bos_chassis.interceptors.validation import Validation
from bos_chassis.settings import ServerSettings, TlsSettings
from bos_chassis.telemetry import Telemetry

# Probes and tools: without authentication, frequent or endless, and noise in logs and traces.
# Each has places and a deadline of its own, and takes nothing from the calls of the services. A
# check is answered at once, so its places are for those whose message is still on its way.
_HEALTH = "grpc.health.v1.Health"
_REFLECTIONS = (
    "grpc.reflection.v1alpha.ServerReflection",
    "grpc.reflection.v1.ServerReflection",
)
_CHECKS, _CHECK_S = 1024, 10.0
_WATCHES, _WATCH_S = 64, 300.0
_REFLECTED, _REFLECTION_S = 16, 60.0
_PROBE_BYTES = 4096


def server_chain(
    settings: ServerSettings,
    telemetry: Telemetry,
    authenticator: Authenticator | None,
    open_methods: Collection[str] = (),
    *,
    of_services: Mapping[str, Authenticator] | None = None,
    shown_by: Mapping[str, frozenset[str]] | None = None,
    request_bytes: Mapping[str, int] | None = None,
    from_proxy: Callable[[Mapping[str, str]], str | None] | None = None,
) -> Chain:
    """The concerns of every Bos server, outermost first.

    Args:
        settings: Of the server.
        telemetry: Of the service.
        authenticator: None for no authentication.
        open_methods: Methods as ``service/method`` that need no credential.
        of_services: Authenticators of single services, by full name, in place of the first.
        shown_by: Of such services, who may show a run token that was made for another.
        request_bytes: Largest request of each service.
        from_proxy: The client's address, where metadata prove that a call comes through a proxy of
            this deployment; None where they do not.
    """

    def believed(call: ServerCall) -> bool:
        principal = call.principal
        return (
            authenticator is None
            or settings.trust_trace_context
            or (principal is not None and principal.kind == "run_token")
            or (from_proxy is not None and from_proxy(call.metadata) is not None)
        )

    def network_of(call: ServerCall) -> str:
        forwarded = None if from_proxy is None else from_proxy(call.metadata)
        return network(client_address(call.peer, forwarded))

    concerns = (
        Metrics(telemetry),
        RequestLog(telemetry, settings.slow_call_s),
        Deadlines(settings.default_deadline_s, settings.max_deadline_s),
        Authentication(authenticator, of_services, shown_by),
        ConcurrencyLimiter(
            per_caller=settings.max_calls_per_caller,
            bytes_per_caller=settings.max_request_bytes_per_caller,
            total=settings.max_concurrent_rpcs,
            per_open_method=settings.max_calls_per_open_method,
        ),
        # Behind all that refuses: unauthenticated callers cause no spans.
        Tracing(telemetry, believed),
        RequestSizes(request_bytes or {}),
        Validation(),
    )
    return Chain(
        Hooks(concerns),
        special=_infrastructure(),
        open_methods=open_methods,
        message_timeout_s=settings.message_timeout_s,
        services_of=_services_of(settings.tls),
        network_of=network_of,
    )


def _services_of(tls: TlsSettings) -> Callable[[Any], frozenset[str] | None] | None:
    if not (tls.configured and tls.client_certificates):
        return None
    return partial(calling_services, trust_domain=tls.trust_domain)


def _infrastructure() -> dict[str, Hooks]:
    def hooks(service: str, places: int, longest_s: float) -> Hooks:
        return Hooks(
            (
                Deadlines(longest_s, longest_s),
                MethodShedder(places),
                RequestSizes({service: _PROBE_BYTES}),
            )
        )

    return {
        f"/{_HEALTH}/Check": hooks(_HEALTH, _CHECKS, _CHECK_S),
        f"/{_HEALTH}/Watch": hooks(_HEALTH, _WATCHES, _WATCH_S),
        **{
            f"/{service}/ServerReflectionInfo": hooks(service, _REFLECTED, _REFLECTION_S)
            for service in _REFLECTIONS
        },
    }
