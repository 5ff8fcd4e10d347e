"""Domain metrics of the SQL agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class SqlMetrics:
    """Queries of the model as the guard judged them; rules are the guard's own, so bounded."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.checks = Counter(
            "bos_sql_guard_checks",
            "Queries that the agent's guard checked: approved, refused, or not parsed",
            ("outcome",),
            registry=registry,
        )
        self.refusals = Counter(
            "bos_sql_guard_refusals",
            "Broken rules of queries that the agent's guard refused",
            ("rule",),
            registry=registry,
        )
