"""A service at an address that outlives it: it goes away, comes back, and is far away if wanted."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bos_chassis.metrics.exposition import metrics_server
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_testkit.processes import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from bos_chassis.settings import TlsSettings

    Make = Callable[[ServerSettings, Telemetry], AbstractAsyncContextManager[Any]]


@dataclass
class Part:
    """A service behind a link that can be slow; both keep their ports."""

    name: str
    make: Make
    tls: TlsSettings
    """Its certificate, whose files may be replaced."""
    behind: int = field(default_factory=free_port)
    port: int = field(default_factory=free_port)
    metrics_port: int = field(default_factory=free_port)
    """Where Prometheus reads it, while it runs."""
    delay_s: float = 0.0
    """Added to each piece that crosses the link, either way."""
    _running: AsyncExitStack | None = None
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def address(self) -> str:
        """What others call."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it, and the link to it; its metrics begin anew."""
        self._running = AsyncExitStack()
        enter = self._running.enter_async_context
        telemetry = Telemetry.for_tests(self.name)
        server = ServerSettings(port=self.behind, grace_s=0.2, tls=self.tls)
        await enter(self.make(server, telemetry))
        await enter(metrics_server(telemetry.registry, "127.0.0.1", self.metrics_port))
        await enter(self._link())

    async def stop(self) -> None:
        """Stop it, if it runs: connections are refused from then on."""
        if self._running is not None:
            running, self._running = self._running, None
            await running.aclose()

    def drop_connections(self) -> None:
        """End all connections to it, so that its clients make new ones."""
        for connection in self._connections:
            connection.cancel()

    @asynccontextmanager
    async def _link(self) -> AsyncIterator[None]:
        over = False

        def opened(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if over:
                writer.close()
                return
            task = asyncio.create_task(self._carry(reader, writer))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
            # Also of one that is given up before it has begun.
            task.add_done_callback(lambda _: writer.close())

        server = await asyncio.start_server(opened, "127.0.0.1", self.port)
        try:
            yield
        finally:
            over = True
            server.close()
            self.drop_connections()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await server.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection; the end of either side is the end of both."""
        ways: list[asyncio.Task[None]] = []
        ends = [writer]
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.behind)
            ends.append(back)
            ways = [
                asyncio.create_task(self._copy(reader, back)),
                asyncio.create_task(self._copy(there, writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            return
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in ends:
                end.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            writer.write(data)
            await writer.drain()
