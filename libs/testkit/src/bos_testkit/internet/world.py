"""A small internet: names, addresses that look public, and real servers behind them.

The event loop's ``sock_connect`` is the wire. It carries public addresses to local servers,
loopback as it is, and nothing else; every address that was dialled is recorded. Its ``getaddrinfo``
can be the name server of clients that are given no other one.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

PUBLIC = "93.184.215.14"
"""Where the site of the tests seems to be."""


@dataclass
class Request:
    """A request as it arrived."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """Path and query."""
        return self.line.split(" ")[1]


def ok(body: bytes = b"hello", **headers: str) -> bytes:
    """A response of status 200; header names are written with underscores."""
    return answer("200 OK", body, **headers)


def answer(status: str, body: bytes = b"", **headers: str) -> bytes:
    """A response; header names are written with underscores."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body


@dataclass
class Site:
    """A server that records what reaches it and answers with bytes, whole or piece by piece."""

    respond: Callable[[Request], bytes | AsyncIterator[bytes]] = lambda _: ok()
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client hung up."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with the first request."""
    sni: list[str | None] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        self.connections += 1
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                self.reached.set()
                reply = self.respond(request)
                if isinstance(reply, bytes):
                    writer.write(reply)
                    await writer.drain()
                    continue
                pump = asyncio.create_task(_pump(reply, writer))
                hung_up = asyncio.create_task(reader.read())
                await asyncio.wait({pump, hung_up}, return_when=asyncio.FIRST_COMPLETED)
                pump.cancel()
                hung_up.cancel()
                await asyncio.gather(pump, hung_up, return_exceptions=True)
                break
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            self.gone.set()
            writer.close()


async def _pump(pieces: AsyncIterator[bytes], writer: asyncio.StreamWriter) -> None:
    async for piece in pieces:
        writer.write(piece)
        await writer.drain()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    headers = {n.lower(): v for n, _, v in (text.partition(": ") for text in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(line, headers, body)


@dataclass
class Names:
    """A resolver that answers from a table; a list of lists is one answer after another."""

    table: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Addresses of the table; OSError where the name is not in it."""
        self.asked.append(host)
        found = self.table.get(host)
        if found is None:
            raise OSError("no such name")
        if not found or isinstance(found[0], str):
            return list[str](found)
        return list[str](found[min(self.asked.count(host), len(found)) - 1])


@dataclass
class Internet:
    """Sites by the addresses that lead to them."""

    names: Names = field(default_factory=Names)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    routes: dict[tuple[str, int], int] = field(default_factory=dict)
    dialled: list[tuple[str, int]] = field(default_factory=list)

    async def serve(
        self,
        respond: Callable[[Request], bytes | AsyncIterator[bytes]] = lambda _: ok(),
        *,
        address: str = PUBLIC,
        names: Sequence[str] = (),
        port: int = 80,
        context: Callable[[Site], ssl.SSLContext] | None = None,
    ) -> Site:
        """Serve at a port of ``address`` and give it names."""
        site = Site(respond)
        tls = None if context is None else context(site)
        server = await asyncio.start_server(site.serve, "127.0.0.1", 0, ssl=tls)
        await self.stack.enter_async_context(server)
        self.stack.callback(server.close)
        site.port = server.sockets[0].getsockname()[1]
        self.routes[address, port] = site.port
        for name in names:
            self.names.table.setdefault(name, [address])
        return site


@asynccontextmanager
async def wired(internet: Internet, *, system: bool = False) -> AsyncIterator[None]:
    """All connections of this event loop go through ``internet`` until the block is left.

    Args:
        internet: The internet.
        system: Whether the operating system's resolver answers from it, too.
    """
    loop: Any = asyncio.get_running_loop()
    connect, look_up = loop.sock_connect, loop.getaddrinfo

    async def wire(sock: Any, address: Any) -> None:
        if sock.family == socket.AF_UNIX:  # of a database
            await connect(sock, address)
            return
        end = (address[0], address[1])
        internet.dialled.append(end)
        if end in internet.routes:
            end = ("127.0.0.1", internet.routes[end])
        elif end[0] != "127.0.0.1":
            raise ConnectionRefusedError("not in this internet")
        await connect(sock, end)

    async def named(host: Any, port: Any, **more: Any) -> Any:
        try:
            return await look_up(host, port, **{**more, "flags": socket.AI_NUMERICHOST})
        except socket.gaierror:
            found = await internet.names.resolve(host, port)
            kind = socket.SOCK_STREAM
            return [(socket.AF_INET, kind, 6, "", (address, port)) for address in found]

    loop.sock_connect = wire
    if system:
        loop.getaddrinfo = named
    try:
        async with internet.stack:
            yield
    finally:
        del loop.sock_connect
        if system:
            del loop.getaddrinfo
