"""A server that speaks as much TDS as a login and a small result take; no SQL Server.

It shows what the real driver makes of a server's words: refusals, rows, errors, silence. What SQL
Server itself would say to a statement is not known here.
"""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bos_testkit.certificates import Authority

PRELOGIN, LOGIN, BATCH, ATTENTION, REPLY = 0x12, 0x10, 0x01, 0x06, 0x04
MOST = 4096 - 8
HEADER = struct.Struct(">BBHHBB")
ENCRYPT_ON, ENCRYPT_NOT_SUPPORTED = 1, 2


@dataclass(frozen=True)
class Rows:
    """A result of whole numbers and texts; ``endless``: the last row is repeated until stopped."""

    columns: Sequence[str] = ()
    rows: Sequence[Sequence[int | str | None]] = ()
    endless: bool = False


@dataclass(frozen=True)
class Refusal:
    """An error of the server."""

    number: int
    message: str


SILENCE = object()
"""No answer, until the client sends an attention signal."""


@dataclass
class TdsServer:
    """Requests that a running server got."""

    port: int
    batches: list[str] = field(default_factory=list)
    logins: int = 0
    attentions: int = 0
    connections: int = 0
    open: int = 0


@asynccontextmanager
async def tds_server(
    answer: Callable[[str], object],
    *,
    login: Refusal | None = None,
    certificate: ssl.SSLContext | None = None,
) -> AsyncIterator[TdsServer]:
    """Serve on loopback; with ``certificate`` encrypted, else encryption is not supported."""
    state = TdsServer(port=0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        state.open += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            await _Connection(reader, writer, state, answer, login, certificate).serve()
        state.open -= 1
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()


class _Connection:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        state: TdsServer,
        answer: Callable[[str], object],
        login: Refusal | None,
        certificate: ssl.SSLContext | None,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._state, self._answer, self._login = state, answer, login
        self._certificate = certificate
        self._tls: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()

    async def serve(self) -> None:
        kind, body = await self._message()
        assert kind == PRELOGIN
        flag = ENCRYPT_ON if self._certificate else ENCRYPT_NOT_SUPPORTED
        options = struct.pack(">BHHBHHB", 0, 11, 6, 1, 17, 1, 0xFF)
        await self._send(options + bytes([16, 0, 0, 0, 0, 0, flag]))
        if self._certificate:
            await self._shake_hands(self._certificate)
        kind, body = await self._message()
        assert kind == LOGIN
        self._state.logins += 1
        if self._login is not None:
            await self._send(_error(self._login) + _done(2))
            return
        name = "Test"
        acknowledged = struct.pack(">BI", 1, 0x74000004) + _short(name) + bytes([16, 0, 0, 0])
        database = bytes([1]) + _short("shop") + _short("master")
        await self._send(
            b"\xad" + struct.pack("<H", len(acknowledged)) + acknowledged
            + b"\xe3" + struct.pack("<H", len(database)) + database
            + _done()
        )  # fmt: skip
        while True:
            kind, body = await self._message()
            if kind == ATTENTION:
                self._state.attentions += 1
                await self._send(_done(0x20))
                continue
            (headers,) = struct.unpack_from("<I", body)
            sql = body[headers:].decode("utf-16-le")
            self._state.batches.append(sql)
            await self._reply(self._answer(sql))

    async def _reply(self, answer: object) -> None:
        if isinstance(answer, Refusal):
            await self._send(_error(answer) + _done(2))
        elif isinstance(answer, Rows) and answer.endless:
            await self._flood(answer)
        elif isinstance(answer, Rows) and answer.columns:
            await self._send(_columns(answer) + b"".join(map(_row, answer.rows)) + _done())
        elif answer is not SILENCE:
            await self._send(_done())

    async def _flood(self, answer: Rows) -> None:
        """Rows without end, until an attention signal comes."""
        stop = asyncio.ensure_future(self._message())
        try:
            await self._send(_columns(answer), status=0)
            while not stop.done():
                await self._send(_row(answer.rows[-1]) * 20, status=0)
        finally:
            await asyncio.wait([stop], timeout=5)
            stop.exception()
        assert stop.result()[0] == ATTENTION
        self._state.attentions += 1
        await self._send(_done(0x20))

    # Packets

    async def _message(self) -> tuple[int, bytes]:
        body = b""
        while True:
            header = await self._exactly(HEADER.size)
            kind, status, size, *_ = HEADER.unpack(header)
            body += await self._exactly(size - HEADER.size)
            if status & 1:
                return kind, body

    async def _send(self, body: bytes, kind: int = REPLY, status: int = 1) -> None:
        while len(body) > MOST:
            await self._packet(body[:MOST], kind, 0)
            body = body[MOST:]
        await self._packet(body, kind, status)

    async def _packet(self, body: bytes, kind: int, status: int) -> None:
        data = HEADER.pack(kind, status, HEADER.size + len(body), 0, 1, 0) + body
        if self._tls is not None:
            self._tls.write(data)
            data = self._outgoing.read()
        self._writer.write(data)
        await self._writer.drain()

    async def _exactly(self, size: int) -> bytes:
        if self._tls is None:
            return await self._reader.readexactly(size)
        data = b""
        while len(data) < size:
            try:
                data += self._tls.read(size - len(data))
            except ssl.SSLWantReadError:
                if not (more := await self._reader.read(1 << 16)):
                    raise asyncio.IncompleteReadError(data, size) from None
                self._incoming.write(more)
        return data

    async def _shake_hands(self, certificate: ssl.SSLContext) -> None:
        tls = certificate.wrap_bio(self._incoming, self._outgoing, server_side=True)
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                if data := self._outgoing.read():
                    await self._send(data, PRELOGIN)
                self._incoming.write((await self._message())[1])
            else:
                break
        if data := self._outgoing.read():
            await self._send(data, PRELOGIN)
        self._tls = tls


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode("utf-16-le")


def _error(refusal: Refusal) -> bytes:
    text = refusal.message
    body = struct.pack("<iBBH", refusal.number, 1, 16, len(text)) + text.encode("utf-16-le")
    body += _short("server") + _short("") + struct.pack("<i", 1)
    return b"\xaa" + struct.pack("<H", len(body)) + body


def _done(status: int = 0) -> bytes:
    return b"\xfd" + struct.pack("<HHQ", status, 0, 0)


def _columns(answer: Rows) -> bytes:
    first = answer.rows[0] if answer.rows else [""] * len(answer.columns)
    data = b"\x81" + struct.pack("<H", len(answer.columns))
    for name, cell in zip(answer.columns, first, strict=True):
        whole = isinstance(cell, int)
        kind = b"\x26\x08" if whole else b"\xe7\x40\x1f\x09\x04\xd0\x00\x34"
        data += struct.pack("<IH", 0, 1) + kind + _short(name)
    return data


def _row(row: Sequence[int | str | None]) -> bytes:
    data = b"\xd1"
    for cell in row:
        if isinstance(cell, int):
            data += struct.pack("<Bq", 8, cell)
        elif cell is None:
            data += b"\xff\xff"
        else:
            text = cell.encode("utf-16-le")
            data += struct.pack("<H", len(text)) + text
    return data


def certificate_for(host: str, folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's context with a certificate for ``host``, and the file that makes it trusted."""
    issued = Authority(folder / host).issue("sql_server", hosts=(host,))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.cert_file, issued.key_file)
    return context, issued.ca_file
