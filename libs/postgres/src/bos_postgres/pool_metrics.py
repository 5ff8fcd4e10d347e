"""Connections of PostgreSQL pools, read at each scrape; the two pools of a service."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily

from bos_chassis.metrics import SharedMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    import asyncpg
    from prometheus_client.metrics_core import Metric

    Pool = asyncpg.Pool[asyncpg.Record]


class PoolMetrics(SharedMetrics):
    """Connections of pools by state. Get it from :meth:`of`, and name pools by :meth:`watching`."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str], Pool] = {}

    @contextmanager
    def watching(self, service: str, name: str, pool: Pool) -> Iterator[None]:
        """Report a pool while the block runs.

        Args:
            service: Name of the service.
            name: Name of the pool within it; a constant of the code.
            pool: The pool.
        """
        self._pools[service, name] = pool
        try:
            yield
        finally:
            self._pools.pop((service, name), None)

    def collect(self) -> Iterator[Metric]:
        """Samples of all pools."""
        connections, most = _families()
        for labels, pool in list(self._pools.items()):
            size, idle = pool.get_size(), pool.get_idle_size()
            connections.add_metric((*labels, "idle"), idle)
            connections.add_metric((*labels, "used"), size - idle)
            most.add_metric(labels, pool.get_max_size())
        yield connections
        yield most

    def describe(self) -> Iterator[Metric]:
        """All names."""
        yield from _families()


def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
    return (
        GaugeMetricFamily(
            "bos_postgres_pool_connections",
            "Open connections of a pool, by state: idle or used",
            labels=("service", "pool", "state"),
        ),
        GaugeMetricFamily(
            "bos_postgres_pool_max_connections",
            "Connections that a pool opens at most",
            labels=("service", "pool"),
        ),
    )
