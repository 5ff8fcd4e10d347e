"""A PostgreSQL as durable as a production one, in a folder of its own, for the whole bench."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bos_bench.measure import cpu_seconds_of
from bos_gateway.service import migrate_store
from bos_postgres import EmbeddedPostgres, create_database


@dataclass(frozen=True, slots=True)
class Store:
    """A running server with fsync on."""

    server: EmbeddedPostgres

    async def fresh_log(self, name: str) -> str:
        """URL of a new database with an empty run log."""
        dsn = await create_database(self.server.dsn(), name)
        await migrate_store(dsn)
        return dsn

    def cpu_s(self) -> float:
        """Processor time of all its processes; only differences between connects mean anything."""
        return cpu_seconds_of(self.server.pid) or 0.0


@asynccontextmanager
async def durable_store() -> AsyncIterator[Store]:
    """Start the server; everything of it is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="bos-bench-") as folder:
        server = EmbeddedPostgres(Path(folder) / "postgres", durable=True)
        try:
            async with server:
                yield Store(server)
        finally:
            server.delete_data()
