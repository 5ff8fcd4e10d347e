"""Connections of PostgreSQL pools, read at each scrape; the two pools of a service."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily

from bos_chassis.metrics import SharedMetrics
from bos_postgres.connections import open_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import asyncpg
    from prometheus_client.metrics_core import Metric

    from bos_chassis.telemetry import Telemetry

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


@asynccontextmanager
async def open_pools(
    dsn: str,
    *,
    schema: str,
    reader: str,
    max_size: int,
    max_readers: int,
    telemetry: Telemetry,
    stateless_readers: bool = False,
) -> AsyncIterator[tuple[Pool, Pool]]:
    """The two pools of a service: of its own role, and of the one that reads for users.

    Both are in the metrics of pools, as ``main`` and ``readers``, and in traces.

    Args:
        dsn: PostgreSQL URL.
        schema: Of the service.
        reader: Role that reads what row-level security lets the user see.
        max_size: Upper bound of connections of the service's own role.
        max_readers: Upper bound of those of the reader.
        telemetry: Of the service.
        stateless_readers: As ``stateless`` of :func:`open_database`, of the reader's connections.

    Raises:
        Unavailable, ConfigurationError: As :func:`open_database`.
    """
    metrics = PoolMetrics.of(telemetry.registry)
    async with (
        open_database(dsn, schema=schema, max_size=max_size, telemetry=telemetry) as main,
        open_database(
            dsn,
            schema=schema,
            max_size=max_readers,
            role=reader,
            stateless=stateless_readers,
            telemetry=telemetry,
        ) as readers,
    ):
        with (
            metrics.watching(telemetry.service, "main", main),
            metrics.watching(telemetry.service, "readers", readers),
        ):
            yield main, readers
