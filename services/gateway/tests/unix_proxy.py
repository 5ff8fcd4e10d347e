"""A proxy in front of PostgreSQL that can be cut, and mended again."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Proxy:
    """Copies bytes between clients and the socket of the server, as long as it is not cut."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self._parts = urlsplit(dsn)
        query = parse_qs(self._parts.query)
        self._server_folder = query["host"][0]
        self._port = query.get("port", ["5432"])[0]
        self._folder = folder
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def dsn(self) -> str:
        """The URL of the same database by way of the proxy."""
        rest = self._parts.query.replace(
            quote(self._server_folder, safe=""), quote(str(self._folder), safe="")
        )
        return self._parts._replace(query=rest).geturl()

    @property
    def socket(self) -> Path:
        """Where the proxy listens."""
        return self._folder / f".s.PGSQL.{self._port}"

    def cut(self) -> None:
        """From now on nothing gets through, and nobody is told."""
        self._open.clear()

    def mend(self) -> None:
        """Let everything through again, also what was held up."""
        self._open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            path = f"{self._server_folder}/.s.PGSQL.{self._port}"
            to_reader, to_writer = await asyncio.open_unix_connection(path)
            await asyncio.wait(
                [
                    asyncio.create_task(self._copy(reader, to_writer)),
                    asyncio.create_task(self._copy(to_reader, writer)),
                ]
            )
        except asyncio.CancelledError:
            return
        finally:
            self._tasks.discard(task)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def close(self) -> None:
        """End every connection that is left."""
        self.mend()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def postgres_proxy(dsn: str) -> AsyncIterator[Proxy]:
    """A proxy to the database of ``dsn``, whose server listens on a Unix socket."""
    with TemporaryDirectory(prefix="bos-proxy-") as folder:
        proxy = Proxy(Path(folder), dsn)
        server = await asyncio.start_unix_server(proxy.serve, proxy.socket)
        try:
            yield proxy
        finally:
            await proxy.close()
            server.close()
            await server.wait_closed()
