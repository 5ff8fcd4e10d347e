"""Rate, errors and duration of HTTP requests, as an ASGI application around another."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram

from bos_chassis.metrics import OTHER, SharedMetrics, current_exemplar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics import MetricWrapperBase
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_ABORTED = "499"
"""Code of a request whose client left, or whose handler failed, before there was a status."""


class HttpServerMetrics(SharedMetrics):
    """Requests that HTTP servers answered, without paths. Get it from :meth:`of`."""

    def __init__(self) -> None:
        self.requests = Counter(
            "bos_http_server_requests",
            "HTTP requests answered, by status; 499 where there was none",
            ("service", "method", "code"),
            registry=None,
        )
        self.duration = Histogram(
            "bos_http_server_duration_seconds",
            "Time from an HTTP request to the end of its answer, streams included",
            ("service", "method"),
            buckets=_BUCKETS_S,
            registry=None,
        )

    def parts(self) -> Iterable[MetricWrapperBase]:
        """All of them."""
        return (self.requests, self.duration)


class Measured:
    """An application whose requests are counted.

    Args:
        app: The application.
        service: Name of the service, as a label.
        registry: Where the metrics are.
    """

    def __init__(self, app: ASGIApp, service: str, registry: CollectorRegistry) -> None:
        self._app = app
        self._service = service
        self._metrics = HttpServerMetrics.of(registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count it when its answer has ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        code, started = _ABORTED, time.perf_counter()

        async def noting(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else OTHER
            labels = (self._service, method)
            self._metrics.requests.labels(*labels, code).inc()
            seconds = time.perf_counter() - started
            self._metrics.duration.labels(*labels).observe(seconds, current_exemplar())
