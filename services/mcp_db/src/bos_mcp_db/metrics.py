"""Metrics of queries: how many, how long, how they ended, and which rules refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from bos_chassis.metrics import current_exemplar

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class QueryMetrics:
    """Counters and the latency of ``mcp_db_query``."""

    in_flight: Gauge
    """Queries being checked or run."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._queries = Counter(
            "bos_db_queries", "Queries by outcome", ["outcome"], registry=registry
        )
        self.in_flight = Gauge(
            "bos_db_queries_in_flight", "Queries being checked or run", registry=registry
        )
        self._duration = Histogram(
            "bos_db_query_duration_seconds",
            "Time from the call to the envelope",
            ["outcome"],
            registry=registry,
        )
        self._refusals = Counter(
            "bos_db_guard_refusals",
            "Broken guard rules of refused queries",
            ["rule"],
            registry=registry,
        )

    def observe(self, outcome: str, seconds: float) -> None:
        """Count one query that ended as ``outcome``."""
        self._queries.labels(outcome).inc()
        self._duration.labels(outcome).observe(seconds, current_exemplar())

    def refused(self, rule: str) -> None:
        """Count one broken rule."""
        self._refusals.labels(rule).inc()
