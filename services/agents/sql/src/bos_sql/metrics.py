"""Domain metrics of the SQL agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter

from bos_chassis.metrics import SharedMetrics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics import MetricWrapperBase


class SqlMetrics(SharedMetrics):
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

        self.examples = Counter(
            "bos_sql_verified_queries",
            "Verified queries that steps were given, by outcome: shown to the model, of another "
            "database, refused by the guard, unlike the question, or without room",
            ("outcome",),
            registry=None,
        )

    def parts(self) -> Iterable[MetricWrapperBase]:
        """All of them."""
        return (self.checks, self.refusals, self.examples)
