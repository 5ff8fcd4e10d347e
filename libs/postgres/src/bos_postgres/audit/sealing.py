"""Sealing and dropping audit entries in the background, for the life of a service."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from bos_chassis.concurrency.periodic_tasks import periodic_tasks
from bos_chassis.settings import Settings
from bos_postgres.audit.trail import drop_older, seal
from bos_postgres.connections import acquire, statement_errors
from bos_postgres.migrations import migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

    from bos_chassis.telemetry import Telemetry

AUDIT_MIGRATIONS: Final = Path(__file__).parent / "migrations"
"""The tables; for :func:`migrate_audit`."""

_TABLE: Final = "audit_migrations"
_DROP_EVERY_S = 3600.0


class AuditSettings(Settings):
    """``BOS_AUDIT_…``: the audit trails of all services."""

    model_config = SettingsConfigDict(env_prefix="BOS_AUDIT_")

    retention_days: float = Field(
        default=400.0, gt=0, le=36_500, description="How long entries of the audit trail are kept"
    )
    seal_s: float = Field(
        default=1.0, gt=0, le=60, description="Time between two rounds of sealing new entries"
    )


async def migrate_audit(dsn: str, *, schema: str) -> None:
    """Bring the tables of the audit trail in ``schema`` up to date, before the service's own.

    Raises:
        ConfigurationError, Unavailable: As :func:`bos_postgres.migrate`.
    """
    await migrate(dsn, AUDIT_MIGRATIONS, schema=schema, table=_TABLE)


@asynccontextmanager
async def running_audit(
    pool: asyncpg.Pool[asyncpg.Record], settings: AuditSettings, telemetry: Telemetry
) -> AsyncIterator[None]:
    """Seal what is pending, and drop what is too old, while the block runs.

    Replicas may do so at once. What is pending at the end is sealed by the next one.
    """
    log = telemetry.logger("bos.audit")
    age = timedelta(days=settings.retention_days)

    async def once(*, drop: bool) -> bool:
        async with acquire(pool) as session:
            with statement_errors(session):
                end = await seal(session)
                dropped = await drop_older(session, datetime.now(UTC) - age) if drop else 0
        if end is not None:
            # The log is out of reach of those who can change the trail: an anchor for its end.
            log.info("audit sealed", position=end.position, hash=end.hash.hex())
        if dropped:
            log.info("audit entries dropped", count=dropped)
        return end is not None

    loop, drop_at = asyncio.get_running_loop(), 0.0

    async def seal_batch() -> None:
        nonlocal drop_at
        drop = loop.time() >= drop_at
        more = await once(drop=drop)
        if drop:
            drop_at = loop.time() + _DROP_EVERY_S
        if not more:
            await asyncio.sleep(settings.seal_s)

    async with periodic_tasks(log, {"audit sealing": seal_batch}, retry_s=settings.seal_s):
        yield
