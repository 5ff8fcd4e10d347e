"""Domain metrics of the SQL agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry, Metric


class SqlMetrics(Collector):
    """Queries of the model as the guard judged them; rules are the guard's own, so bounded."""

    def __init__(self) -> None:
        self.checks = Counter(
            "bos_sql_guard_checks",
            "Queries that the agent's guard checked: approved, refused, or not parsed",
            ("outcome",),
            registry=None,
        )
        self.refusals = Counter(
            "bos_sql_guard_refusals",
            "Broken rules of queries that the agent's guard refused",
            ("rule",),
            registry=None,
        )

    @classmethod
    def of(cls, registry: CollectorRegistry) -> SqlMetrics:
        """The metrics on ``registry``, which agents served in turn share."""
        # There is no public way to ask a registry what it holds.
        existing = registry._names_to_collectors.get("bos_sql_guard_checks")
        if isinstance(existing, SqlMetrics):
            return existing
        metrics = cls()
        registry.register(metrics)
        return metrics

    def collect(self) -> Iterator[Metric]:
        """All samples."""
        for metric in (self.checks, self.refusals):
            yield from metric.collect()

    def describe(self) -> Iterator[Metric]:
        """All names."""
        for metric in (self.checks, self.refusals):
            yield from metric.describe()
