"""A PostgreSQL of a test's own that can crash and come back under the same URL."""

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bos_postgres import EmbeddedPostgres, connect
from bos_testkit.processes import free_port


class CrashingPostgres:
    """A server whose commits reach the disk only when a commit waits for it.

    Otherwise its background writer would have flushed most of them before a crash, and there would
    be nothing to lose.
    """

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server

    @property
    def dsn(self) -> str:
        """The same before and after a crash."""
        return self._server.tcp_dsn()

    async def crash(self) -> None:
        """Stop at once, without flushing anything (``pg_ctl stop -m immediate``)."""
        os.kill(self._server.pid, signal.SIGQUIT)
        await asyncio.to_thread(self._server.stop)

    async def start(self) -> None:
        """Recover; returns when connections are accepted."""
        await asyncio.to_thread(self._server.start)


@asynccontextmanager
async def crashing_postgres() -> AsyncIterator[CrashingPostgres]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bos-crash-") as folder:
        server = EmbeddedPostgres(Path(folder) / "data", port=port, durable=False)
        try:
            async with server:
                async with connect(server.tcp_dsn()) as connection:
                    await connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
                    await connection.execute("ALTER SYSTEM SET wal_writer_flush_after = '64MB'")
                    await connection.execute("ALTER SYSTEM SET autovacuum = off")
                    await connection.fetchval("SELECT pg_reload_conf()")
                yield CrashingPostgres(server)
        finally:
            server.delete_data()
