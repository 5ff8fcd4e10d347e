"""Metrics that every process has: RPCs as served and as called, secrets and certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

# Calls range from a sub-millisecond lookup to minutes of model time.
_DURATION_BUCKETS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)


class RpcMetrics:
    """Rate, errors and duration of RPCs, labelled by the service that serves or calls."""

    def __init__(self, registry: CollectorRegistry) -> None:
        method = ("service", "grpc_service", "grpc_method")
        self.handled = Counter(
            "bos_rpc_server_handled",
            "RPCs completed by the server, by status code",
            (*method, "grpc_code"),
            registry=registry,
        )
        self.duration = Histogram(
            "bos_rpc_server_duration_seconds",
            "Time from the arrival of an RPC to its status",
            method,
            buckets=_DURATION_BUCKETS,
            registry=registry,
        )
        self.in_flight = Gauge(
            "bos_rpc_server_in_flight", "RPCs being handled", method, registry=registry
        )
        self.client_handled = Counter(
            "bos_rpc_client_handled",
            "RPCs completed as seen by the caller, by status code",
            (*method, "grpc_code"),
            registry=registry,
        )
        self.client_duration = Histogram(
            "bos_rpc_client_duration_seconds",
            "Time of an RPC as seen by the caller, transport retries included",
            method,
            buckets=_DURATION_BUCKETS,
            registry=registry,
        )


class FileMetrics:
    """Secrets and certificates that come from files."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.unusable = Gauge(
            "bos_secret_file_unusable",
            "1 while the file that a variable names is not usable, and what it held before counts",
            ("service", "variable"),
            registry=registry,
        )
        self.not_after = Gauge(
            "bos_certificate_not_after_timestamp_seconds",
            "When the certificate of a service ends, in seconds since 1970",
            ("service",),
            registry=registry,
        )
