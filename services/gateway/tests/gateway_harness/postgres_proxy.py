"""A proxy in front of PostgreSQL that can be cut, and mended again.

The server may itself go away and come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit


class Proxy:
    """Copies bytes between clients and the server, as long as it is not cut.

    Args:
        connect: Opens a connection to the server.
    """

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.dsn = ""
        """The URL of the same database by way of the proxy."""
        self.delay_s = 0.0
        """Added to each piece that goes either way."""

    def cut(self) -> None:
        """Drop all later traffic, without closing connections."""
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
        self._tasks.add(task)
        copying: list[asyncio.Task[None]] = []
        try:
            await self._open.wait()
            to_reader, to_writer = await self._connect()
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
                await asyncio.sleep(self.delay_s)
                writer.write(data)
                await writer.drain()

    async def close(self) -> None:
        """End every connection that is left."""
        self.mend()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def postgres_proxy(dsn: str) -> AsyncIterator[Proxy]:
    """A proxy to the database of ``dsn``, on a Unix socket or a TCP port as its server is."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    with TemporaryDirectory(prefix="bos-proxy-") as folder:
        if "host" in query:
            behind, file = query["host"][0], f".s.PGSQL.{query.get('port', ['5432'])[0]}"
            proxy = Proxy(lambda: asyncio.open_unix_connection(f"{behind}/{file}"))
            server = await asyncio.start_unix_server(proxy.serve, Path(folder) / file)
            there, here = quote(behind, safe=""), quote(folder, safe="")
            proxy.dsn = parts._replace(query=parts.query.replace(there, here)).geturl()
        else:
            proxy = Proxy(lambda: asyncio.open_connection("127.0.0.1", parts.port))
            server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            login = parts.netloc.rpartition("@")[0]
            proxy.dsn = parts._replace(netloc=f"{login}@127.0.0.1:{port}").geturl()
        try:
            yield proxy
        finally:
            await proxy.close()
            server.close()
            await server.wait_closed()
