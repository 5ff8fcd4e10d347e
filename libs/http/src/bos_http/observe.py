"""What every outgoing call leaves behind: a span, metrics, and a line when it is refused.

Query strings, headers and bodies are never captured.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import trace
from prometheus_client import Counter, Histogram

from bos_chassis.metrics import SharedMetrics, exemplar_of
from bos_chassis.tracing import attributes as names
from bos_http.errors import HttpFailed, HttpRefused, HttpTimedOut

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics import MetricWrapperBase

    from bos_chassis.telemetry import Telemetry
    from bos_http.redirects import Hop

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class HttpMetrics(SharedMetrics):
    """Outgoing calls by service. Get it from :meth:`of`."""

    def __init__(self) -> None:
        self.requests = Counter(
            "bos_http_client_requests",
            "Outgoing HTTP calls by outcome and by why the host is allowed; redirects not counted",
            ("service", "host_class", "outcome"),
            registry=None,
        )
        self.refusals = Counter(
            "bos_http_client_refusals",
            "Outgoing HTTP calls that the policy refused, by rule",
            ("service", "rule"),
            registry=None,
        )
        self.duration = Histogram(
            "bos_http_client_duration_seconds",
            "Time of an outgoing HTTP call, redirects and body included",
            ("service",),
            buckets=_BUCKETS_S,
            registry=None,
        )

    def parts(self) -> Iterable[MetricWrapperBase]:
        """All of them."""
        return (self.requests, self.refusals, self.duration)


class Observer:
    """Watches the calls of one client."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._service = telemetry.service
        self._tracer = telemetry.tracer
        self._log = telemetry.logger("bos_http")
        self._metrics = HttpMetrics.of(telemetry.registry)

    @contextmanager
    def call(self, method: str) -> Iterator[ObservedCall]:
        """A span and the metrics of one call; an exception becomes its outcome."""
        name = method if method in _KNOWN_METHODS else "_OTHER"
        # Not made current: only hosts that may learn trace ids get them, each by its own header.
        call = ObservedCall(
            self._tracer.start_span(
                name, kind=trace.SpanKind.CLIENT, attributes={names.HTTP_REQUEST_METHOD: name}
            )
        )
        try:
            yield call
        except BaseException as error:
            self._failed(call, error)
            raise
        finally:
            self._metrics.requests.labels(self._service, call.host_class, call.outcome).inc()
            duration = self._metrics.duration.labels(self._service)
            duration.observe(call.elapsed_s(), exemplar_of(call.span))
            call.span.end()

    def _failed(self, call: ObservedCall, error: BaseException) -> None:
        call.outcome = _outcome(error)
        call.span.set_status(trace.Status(trace.StatusCode.ERROR))
        call.span.set_attribute(names.ERROR_TYPE, type(error).__qualname__)
        if isinstance(error, HttpRefused):
            rule = error.rule.value
            call.span.set_attribute(names.HTTP_RULE, rule)
            self._metrics.refusals.labels(self._service, rule).inc()
            self._log.warning("outgoing call refused", rule=rule, host=call.host, hop=call.hops)


class ObservedCall:
    """One call being observed."""

    def __init__(self, span: trace.Span) -> None:
        self.span = span
        self.host: str | None = None
        self.host_class = "none"
        self.hops = 0
        self.outcome = "failed"
        self._started = time.monotonic()

    def elapsed_s(self) -> float:
        """Seconds since the call began."""
        return time.monotonic() - self._started

    def hop(self, hop: Hop) -> None:
        """A request is about to be sent."""
        self.hops += 1
        self.host = hop.target.host
        if self.hops == 1:
            self.host_class = hop.host_class.value
        else:
            self.span.set_attribute(names.HTTP_RESEND_COUNT, self.hops - 1)
        self.span.set_attributes(
            {
                names.SERVER_ADDRESS: hop.target.host,
                names.SERVER_PORT: hop.target.port,
                names.URL_FULL: hop.target.url_without_query,
            }
        )

    def answered(self, status: int) -> None:
        """The call has its response."""
        self.outcome = f"{status // 100}xx"
        self.span.set_attribute(names.HTTP_RESPONSE_STATUS_CODE, status)
        if status >= 400:
            self.span.set_status(trace.Status(trace.StatusCode.ERROR))


def _outcome(error: BaseException) -> str:
    match error:
        case HttpRefused():
            return "refused"
        case HttpTimedOut():
            return "timed_out"
        case HttpFailed():
            return "failed"
        case asyncio.CancelledError():
            return "cancelled"
        case _:
            return "error"
