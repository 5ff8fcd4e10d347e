"""Metrics that several services or clients of one process share on its registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics import MetricWrapperBase
    from prometheus_client.metrics_core import Metric


class SharedMetrics(Collector):
    """Registered once on a registry. Get it from :meth:`of`; subclasses take no arguments."""

    @classmethod
    def of(cls, registry: CollectorRegistry) -> Self:
        """The metrics on ``registry``, which all services of a process share."""
        # There is no public way to ask a registry what it holds.
        for existing in list(registry._collector_to_names):
            if isinstance(existing, cls):
                return existing
        metrics = cls()
        registry.register(metrics)
        return metrics

    def parts(self) -> Iterable[MetricWrapperBase]:
        """The counters, gauges and histograms, each made with ``registry=None``."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All samples."""
        for part in self.parts():
            yield from part.collect()

    def describe(self) -> Iterator[Metric]:
        """All names."""
        for part in self.parts():
            yield from part.describe()
