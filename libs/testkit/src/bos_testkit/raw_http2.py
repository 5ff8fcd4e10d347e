"""HTTP/2 by hand, for what no gRPC client does: calls without a message, or with garbage."""

from __future__ import annotations

import asyncio
import re
import struct
from collections import defaultdict
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Iterable

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW, _CONTINUATION = (0, 1, 3, 4, 6, 7, 8, 9)
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_INITIAL_WINDOW = 65_535
_LARGEST_FRAME = 16_384
# Without a table for the other side, names and values of its headers come as they are.
_NO_TABLE = struct.pack(">HI", 1, 0)
_WIDE = struct.pack(">HI", 4, 2**31 - 1)
_STATUS = re.compile(rb"grpc-status([\x01\x02])([0-9]{1,2})")


def grpc_frame(message: bytes) -> bytes:
    """``message`` as gRPC has it in DATA frames."""
    return struct.pack(">BI", 0, len(message)) + message


class RawConnection:
    """One HTTP/2 connection of a client that keeps to the frames, and to nothing else.

    It acknowledges settings and pings, and keeps count of how its streams ended. It heeds the
    windows of the server, which would hang up otherwise.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._next = 1
        self._initial = _INITIAL_WINDOW
        self._window = _INITIAL_WINDOW
        self._windows: dict[int, int] = {}
        self._changed = asyncio.Event()
        self.statuses: dict[int, int] = {}
        """gRPC status by stream, of those that have one."""
        self.reset: set[int] = set()
        """Streams that the server dropped."""
        self.received: dict[int, bytes] = defaultdict(bytes)
        """What came on a stream: header blocks and data."""
        self.closed = asyncio.Event()
        """Set when the server has hung up."""
        self.asked = 1
        """How many settings were sent."""
        self.agreed = 0
        """How many settings of ours the server has acknowledged."""

    @property
    def calls(self) -> int:
        """How many calls were begun."""
        return self._next // 2

    @property
    def ended(self) -> int:
        """How many streams the server has ended, one way or the other."""
        return len(self.statuses.keys() | self.reset)

    def greet(self) -> None:
        """Begin HTTP/2, with as much room for what the server sends as there is."""
        self._writer.write(_PREFACE)
        self._frame(_SETTINGS, 0, 0, _NO_TABLE + _WIDE)
        self._frame(_WINDOW, 0, 0, struct.pack(">I", 2**30))

    def begin(
        self, path: str, metadata: Iterable[tuple[str, str]] = (), *, end: bool = False
    ) -> int:
        """Send the headers of a call and nothing else; the number of its stream."""
        stream, self._next = self._next, self._next + 2
        self._windows[stream] = self._initial
        headers = (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "bos"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *metadata,
        )
        flags = _END_HEADERS | (_END_STREAM if end else 0)
        self._frame(_HEADERS, flags, stream, b"".join(_literal(*entry) for entry in headers))
        return stream

    def begin_half(self) -> None:
        """Begin headers that never end."""
        self._next += 2
        self._frame(_HEADERS, 0, self._next - 2, _literal(":method", "POST"))

    def drop(self, stream: int) -> None:
        """End a stream from this side, at once."""
        self._frame(_RST, 0, stream, struct.pack(">I", 8))

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._frame(_PING, 0, 0, b"\0" * 8)

    def change_settings(self) -> None:
        """Send settings, which the server has to acknowledge."""
        self.asked += 1
        self._frame(_SETTINGS, 0, 0, _WIDE)

    def send_now(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send a few bytes; the windows are not looked at."""
        self._window -= len(data)
        self._windows[stream] -= len(data)
        self._frame(_DATA, _END_STREAM if end else 0, stream, data)

    async def send(self, stream: int, data: bytes, *, end: bool = False) -> bool:
        """Send all of ``data`` as the server takes it; False if it ended the stream before."""
        while data:
            await self._until_window(stream)
            if self.is_over(stream):
                return False
            size = min(len(data), _LARGEST_FRAME, self._window, self._windows[stream])
            part, data = data[:size], data[size:]
            self.send_now(stream, part, end=end and not data)
            await self._writer.drain()
        return True

    def call(
        self,
        path: str,
        message: bytes,
        metadata: Iterable[tuple[str, str]] = (),
        *,
        end: bool = True,
    ) -> int:
        """Headers and a small message; the number of the stream."""
        stream = self.begin(path, metadata)
        self.send_now(stream, grpc_frame(message), end=end)
        return stream

    def take_nothing(self) -> None:
        """Leave the server no window for data of new streams, like a client that does not read."""
        self._frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, 0))

    def forget(self) -> int:
        """Drop what is kept of the streams that have ended; how many that were."""
        ended = self.statuses.keys() | self.reset
        for stream in ended:
            self.received.pop(stream, None)
            self._windows.pop(stream, None)
        self.statuses.clear()
        self.reset.clear()
        return len(ended)

    def is_over(self, stream: int) -> bool:
        """Whether the server has ended this stream, or all."""
        return stream in self.statuses or stream in self.reset or self.closed.is_set()

    async def drain(self) -> None:
        """Wait until the network has taken what was sent."""
        with suppress(ConnectionError):
            await self._writer.drain()

    async def until(self, ended: int, *, within_s: float = 60.0) -> None:
        """Wait until the server has ended this many streams.

        Raises:
            TimeoutError: It has not.
        """
        async with asyncio.timeout(within_s):
            while self.ended < ended and not self.closed.is_set():
                self._changed.clear()
                await self._changed.wait()

    async def until_agreed(self, settings: int) -> None:
        """Wait until the server has acknowledged so many settings, or has hung up."""
        while self.agreed < settings and not self.closed.is_set():
            self._changed.clear()
            await self._changed.wait()

    async def _until_window(self, stream: int) -> None:
        while not self.is_over(stream) and min(self._window, self._windows[stream]) <= 0:
            self._changed.clear()
            await self._changed.wait()

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if not self._writer.is_closing():
            head = struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream)
            self._writer.write(head + payload)

    async def read(self) -> None:
        """Take what the server sends until it hangs up."""
        try:
            while True:
                head = await self._reader.readexactly(9)
                size = int.from_bytes(head[:3], "big")
                payload = await self._reader.readexactly(size) if size else b""
                kind, flags, stream = struct.unpack(">BBI", head[3:])
                self._take(kind, flags, stream & 0x7FFFFFFF, payload)
                self._changed.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.closed.set()
            self._changed.set()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack_from(">HI", payload, at)
                if name == 4:
                    for each in self._windows:
                        self._windows[each] += value - self._initial
                    self._initial = value
            self._frame(_SETTINGS, _ACK, 0, b"")
        elif kind == _SETTINGS:
            self.agreed += 1
        elif kind == _PING and not flags & _ACK:
            self._frame(_PING, _ACK, 0, payload)
        elif kind == _WINDOW:
            added = struct.unpack(">I", payload)[0] & 0x7FFFFFFF
            if stream in self._windows:
                self._windows[stream] += added
            elif not stream:
                self._window += added
        elif stream not in self._windows:
            pass  # it was forgotten
        elif kind == _RST:
            self.reset.add(stream)
        elif kind in (_DATA, _HEADERS, _CONTINUATION):
            self.received[stream] += payload
            if flags & _END_STREAM or kind == _CONTINUATION:
                self._look_for_status(stream)

    def _look_for_status(self, stream: int) -> None:
        found = _STATUS.search(self.received[stream])
        if found is not None:
            self.statuses[stream] = int(found[2])


@asynccontextmanager
async def raw_connection(
    address: str, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawConnection]:
    """A connection to ``address``, ``host:port``; over TLS with a context that offers h2."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
    connection = RawConnection(reader, writer)
    connection.greet()
    reading = asyncio.create_task(connection.read())
    try:
        yield connection
    finally:
        reading.cancel()
        writer.transport.abort()
        with suppress(asyncio.CancelledError):
            await reading


def _literal(name: str, value: str) -> bytes:
    """A header in HPACK: never indexed, not compressed."""
    return b"\x10" + _text(name.encode()) + _text(value.encode("latin-1"))


def _text(text: bytes) -> bytes:
    size = len(text)
    if size < 127:
        return bytes([size]) + text
    rest, head = size - 127, bytearray([127])
    while rest >= 128:
        head.append(rest % 128 + 128)
        rest //= 128
    return bytes(head) + bytes([rest]) + text
