"""TCP proxies that slow connections down, and cut them, also at a chosen piece of what passes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

Way = Literal["request", "reply"]
"""To the outside service, or back from it."""
_PIECE_BYTES = 65536


@dataclass(frozen=True)
class Shot:
    """What happens when a piece is about to pass."""

    way: Way
    after: int
    """How many pieces on this way pass before that."""
    fire: Callable[[], bool]
    """Returns whether the connection is cut before the piece has passed."""


@dataclass(eq=False)
class Gate:
    """Passes bytes on to the port of an outside service."""

    to: int
    port: int = 0
    delay_s: float = 0.0
    """Added to each piece that passes, either way."""
    cuts: int = 0
    """Connections that were cut."""
    _shots: list[Shot] = field(default_factory=list)
    _passed: dict[Way, int] = field(default_factory=lambda: {"request": 0, "reply": 0})
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _open: bool = False

    def arm(self, shot: Shot) -> None:
        self._shots.append(Shot(shot.way, self._passed[shot.way] + shot.after, shot.fire))

    def cut(self) -> bool:
        open_now = list(self._writers)
        for writer in open_now:
            writer.transport.abort()
        self.cuts += bool(open_now)
        return bool(open_now)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection; the end of either side is the end of both."""
        if not self._open:
            writer.close()
            return
        to_writer: asyncio.StreamWriter | None = None
        self._writers.add(writer)
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.to)
            self._writers.add(to_writer)
            copying = [
                asyncio.create_task(self._copy("request", reader, to_writer)),
                asyncio.create_task(self._copy("reply", to_reader, writer)),
            ]
            try:
                await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in copying:
                    each.cancel()
        except OSError:
            return
        finally:
            for each in filter(None, (writer, to_writer)):
                self._writers.discard(each)
                each.close()

    async def _copy(
        self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(_PIECE_BYTES):
                if self._is_shot(way):
                    self.cut()
                    return
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(piece)
                await writer.drain()

    def _is_shot(self, way: Way) -> bool:
        """Fire what is due at this piece; whether it must not pass."""
        number = self._passed[way]
        self._passed[way] = number + 1
        due = [shot for shot in self._shots if shot.way == way and shot.after <= number]
        self._shots = [shot for shot in self._shots if shot not in due]
        fired = [shot.fire() for shot in due]
        return any(fired)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Take connections at the port, or at a free one, until the block is left."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._open = True
        try:
            yield
        finally:
            self._open = False
            server.close()
            self.cut()
            await server.wait_closed()


@asynccontextmanager
async def gate(to: int) -> AsyncIterator[Gate]:
    opened = Gate(to)
    async with opened.listening():
        yield opened
