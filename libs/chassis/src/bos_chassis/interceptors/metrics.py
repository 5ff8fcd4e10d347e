from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bos_chassis.interceptors.concern import Concern
from bos_chassis.metrics import exemplar_of

if TYPE_CHECKING:
    from prometheus_client import Gauge, Histogram

    from bos_chassis.interceptors.concern import ServerCall
    from bos_chassis.telemetry import Telemetry


class _Children(NamedTuple):
    duration: Histogram
    in_flight: Gauge


class Metrics(Concern):
    """Rate, errors, duration and calls in flight per method."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._service = telemetry.service
        self._metrics = telemetry.rpc_metrics
        # Finding a child by labels takes a lock and a hash. Only methods with a handler get here,
        # so the size is bounded by the service's own methods.
        self._children: dict[tuple[str, str], _Children] = {}

    async def begin(self, call: ServerCall) -> None:
        """Count the call as in flight."""
        self._of(call).in_flight.inc()

    def end(self, call: ServerCall) -> None:
        """Record outcome and duration."""
        children = self._of(call)
        children.in_flight.dec()
        children.duration.observe(call.duration_s, exemplar_of(call.span))
        self._metrics.handled.labels(self._service, call.service, call.method, call.code.name).inc()

    def _of(self, call: ServerCall) -> _Children:
        key = (call.service, call.method)
        found = self._children.get(key)
        if found is None:
            labels = (self._service, *key)
            found = self._children[key] = _Children(
                self._metrics.duration.labels(*labels), self._metrics.in_flight.labels(*labels)
            )
        return found
