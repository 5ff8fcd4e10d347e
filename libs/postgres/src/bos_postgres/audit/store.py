"""Store of a service: a PostgreSQL schema with an audit trail, migrated and opened at its start."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from attrs import frozen

from bos_postgres.audit.own_settings import record_settings
from bos_postgres.audit.sealing import migrate_audit, running_audit
from bos_postgres.connections import open_database
from bos_postgres.migrations import migrate
from bos_postgres.pool_metrics import PoolMetrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import asyncpg
    from pydantic import BaseModel

    from bos_chassis.telemetry import Telemetry
    from bos_postgres.audit.sealing import AuditSettings

    Pool = asyncpg.Pool[asyncpg.Record]


@frozen
class ServiceStore:
    """The PostgreSQL schema of one service."""

    schema: str
    """Also the name of the service in its audit trail."""
    migrations: Path
    reader: str
    """Role that reads what row-level security lets the user see."""
    max_connections: int
    """Of the service's own role."""
    max_readers: int
    stateless_readers: bool = False
    """As ``stateless`` of :func:`open_database`, of the reader's connections."""

    async def migrate(self, dsn: str) -> None:
        """Migrate the schema and its audit trail.

        Raises:
            ConfigurationError, Unavailable: as :func:`bos_postgres.migrate`.
        """
        await migrate_audit(dsn, schema=self.schema)
        await migrate(dsn, self.migrations, schema=self.schema)

    @asynccontextmanager
    async def open(
        self, dsn: str, telemetry: Telemetry, *, audit: AuditSettings, settings: BaseModel
    ) -> AsyncIterator[tuple[Pool, Pool]]:
        """Migrate the schema; open its pools and seal its audit trail while the block runs.

        Both pools are in the metrics of pools, as ``main`` and ``readers``, and in traces.

        Args:
            dsn: PostgreSQL URL.
            telemetry: Of the service.
            audit: Settings of its audit trail.
            settings: All settings of the service, recorded in the audit trail if they changed.

        Returns:
            Connections of the service's own role, and of the reader.

        Raises:
            ConfigurationError, Unavailable: as :func:`bos_postgres.migrate`.
        """
        await self.migrate(dsn)
        metrics = PoolMetrics.of(telemetry.registry)
        database = partial(open_database, dsn, schema=self.schema, telemetry=telemetry)
        async with (
            database(max_size=self.max_connections) as pool,
            database(
                max_size=self.max_readers, role=self.reader, stateless=self.stateless_readers
            ) as readers,
        ):
            with (
                metrics.watching(telemetry.service, "main", pool),
                metrics.watching(telemetry.service, "readers", readers),
            ):
                async with running_audit(pool, audit, telemetry):
                    await record_settings(pool, self.schema, settings)
                    yield pool, readers
