"""A proxy in front of a PostgreSQL on a TCP port, which may itself go away and come back."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class TcpProxy:
    """Copies bytes between clients and the server, as long as it is not cut."""

    def __init__(self, dsn: str) -> None:
        self._parts = urlsplit(dsn)
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def dsn(self) -> str:
        """The URL of the same database by way of the proxy."""
        login = self._parts.netloc.rpartition("@")[0]
        return self._parts._replace(netloc=f"{login}@127.0.0.1:{self.port}").geturl()

    def cut(self) -> None:
        """From now on nothing gets through, and nobody is told."""
        self._open.clear()

    def mend(self) -> None:
        """Let everything through again, also what was held up."""
        self._open.set()

    def drop(self) -> None:
        """End every connection; what was held up never arrives."""
        for task in self._tasks:
            task.cancel()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection; the end of either side is the end of both."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        copying: list[asyncio.Task[None]] = []
        try:
            await self._open.wait()
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._parts.port)
            try:
                copying = [
                    asyncio.create_task(self._copy(reader, to_writer)),
                    asyncio.create_task(self._copy(to_reader, writer)),
                ]
                await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
            finally:
                to_writer.close()
        except (OSError, asyncio.CancelledError):
            return
        finally:
            for each in copying:
                each.cancel()
            writer.close()
            self._tasks.discard(task)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()

    async def close(self) -> None:
        """End every connection that is left."""
        self.mend()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def tcp_proxy(dsn: str) -> AsyncIterator[TcpProxy]:
    """A proxy to the database of ``dsn``."""
    proxy = TcpProxy(dsn)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        await proxy.close()
        server.close()
        await server.wait_closed()
