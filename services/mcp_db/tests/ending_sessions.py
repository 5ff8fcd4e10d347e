import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import Enum
from urllib.parse import urlsplit

from bos_postgres.dsn import option, with_address, with_options

_READY = b"Z"


class End(Enum):
    """How a session of PostgreSQL ends."""

    ANNOUNCED = "sent while the client is idle; it reads that before it sees the end"
    ANSWERED = "sent in place of an answer"
    SILENT = "the connection closes in place of an answer"
    HALF = "the connection closes within an answer"


def message(kind: bytes, body: bytes) -> bytes:
    """One message as PostgreSQL sends it."""
    return kind + struct.pack("!i", len(body) + 4) + body


class EndingProxy:
    """Stands before a PostgreSQL server, and ends the first session after so many answers.

    ``answered`` counts those of all sessions, the one to the start of a session included.
    """

    def __init__(self, dsn: str, end: End | None = None, *, answers: int = 0) -> None:
        self.answered = 0
        self.has_ended = False
        self._dsn = dsn
        self._end = end
        self._answers = answers
        self._sessions: list[asyncio.Task[None]] = []
        fields = ("SFATAL", "VFATAL", "C57P01", "Mthe session of 10.0.0.7 has ended", "")
        self._fatal = message(b"E", "".join(f"{field}\0" for field in fields).encode())

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """URL of the server behind this proxy. Leaving waits until its clients are gone."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            address = server.sockets[0].getsockname()
            # An answer to the offer of TLS would be of another form than all others.
            yield with_options(with_address(self._dsn, address), sslmode="disable")
        finally:
            server.close()
            await asyncio.gather(*self._sessions)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._sessions.append(task)
        server, to_server = await self._connect()
        asking = asyncio.create_task(_copy(client, to_server))
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._answer(server, to_client)
        if self._end is not End.ANNOUNCED:
            to_client.close()
        await asking  # until the client disconnects; later requests get no answer
        await _close(to_client)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self._dsn)
        host, port = option(self._dsn, "host") or parts.hostname, option(self._dsn, "port")
        if host and host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port or parts.port)

    async def _answer(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Pass on what the server says, until it or this proxy ends the session."""
        last = None
        while last is None:
            head = await server.readexactly(5)
            said = head + await server.readexactly(struct.unpack("!i", head[1:])[0] - 4)
            if not self.has_ended:
                last = self._last(said)
            await self._before(said)
            self.answered += said.startswith(_READY)
            self.has_ended |= last is not None
            to_client.write(said if last is None else last)
            await to_client.drain()

    async def _before(self, said: bytes) -> None:
        """Called before ``said`` is passed on."""

    def _last(self, said: bytes) -> bytes | None:
        """What the client reads in place of ``said`` and all that would follow; None: that."""
        is_ready = said.startswith(_READY)
        match self._end:
            case End.ANNOUNCED if is_ready and self.answered + 1 == self._answers:
                return said + self._fatal  # in one piece: they are read together
            case End.ANSWERED if self.answered == self._answers:
                return self._fatal
            case End.SILENT if self.answered == self._answers:
                return b""
            case End.HALF if self.answered == self._answers:
                return said[: len(said) // 2]
        return None


class HoldingProxy(EndingProxy):
    """Stands before a PostgreSQL server, and withholds the answer after so many until ``go_on``."""

    def __init__(self, dsn: str, *, answers: int) -> None:
        super().__init__(dsn, answers=answers)
        self.holds = asyncio.Event()
        self.go_on = asyncio.Event()

    async def _before(self, said: bytes) -> None:
        if self.answered == self._answers:
            self.holds.set()
            await self.go_on.wait()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
