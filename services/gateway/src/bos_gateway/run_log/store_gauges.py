"""Gauges of the run log's store: unowned runs, live replicas, sizes, sessions of PostgreSQL."""

from __future__ import annotations

from typing import Final

import asyncpg
from attrs import define

from bos_gateway.metrics import GatewayMetrics
from bos_postgres import fetch

_INTERVAL_S: Final = 15.0
_DUE: Final = """finished_at IS NULL AND replica_id IS NULL AND retry_at < 'infinity'
          AND retry_at <= now()"""
# Each count reads an index alone, and no more of it than is shown.
_STORE: Final = f"""
SELECT (SELECT count(*) FROM (SELECT FROM runs WHERE {_DUE} LIMIT 10000) AS u)::float8 AS unowned,
       coalesce((SELECT extract(epoch FROM now() - min(retry_at)) FROM runs WHERE {_DUE}), 0
       )::float8 AS unowned_oldest_s,
       (SELECT count(*) FROM replicas WHERE lease_until >= now())::float8 AS replicas,
       pg_database_size(current_database())::float8 AS database_bytes,
       pg_total_relation_size('run_events')::float8 AS run_events_bytes,
       (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL)::float8 AS sessions,
       current_setting('max_connections')::float8 AS max_sessions
"""  # noqa: S608  our own text


@define(eq=False)
class StoreGauges:
    """Gauges that every gateway shows alike, as PostgreSQL has them."""

    _pool: asyncpg.Pool[asyncpg.Record]
    _metrics: GatewayMetrics

    async def refresh(self) -> float:
        """Measure once.

        Returns:
            Seconds until the next look.

        Raises:
            BosError: the database is away; the gauges stay as they were.
        """
        (row,) = await fetch(self._pool, _STORE)
        metrics = self._metrics
        metrics.unowned_runs.set(row["unowned"])
        metrics.unowned_oldest_seconds.set(max(0.0, row["unowned_oldest_s"]))
        metrics.live_replicas.set(row["replicas"])
        metrics.database_bytes.set(row["database_bytes"])
        metrics.run_events_bytes.set(row["run_events_bytes"])
        metrics.sessions.set(row["sessions"])
        metrics.max_sessions.set(row["max_sessions"])
        return _INTERVAL_S
