"""A resolver and a site of the internet, for downloads."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest


class Names:
    """A resolver with a table; every public name of the tests is one address."""

    def __init__(self) -> None:
        self.table: dict[str, list[str]] = {}

    async def resolve(self, host: str, port: int) -> list[str]:
        if host not in self.table:
            raise OSError("no such name")
        return self.table[host]


@dataclass
class Site:
    """A server of the internet that answers every request with the same bytes."""

    answers: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split(" ")[1]
            self.requests.append(path)
            missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
            writer.write(self.answers.get(path, missing))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def ok(body: bytes, **headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass
class Internet:
    """One site, found as files.example.com and by the names that tests add."""

    names: Names
    site: Site
    port: int
    dialled: list[tuple[str, int]]


@pytest.fixture
async def internet(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Internet]:
    loop: Any = asyncio.get_running_loop()
    really = loop.sock_connect
    site, names, dialled = Site(), Names(), []
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    names.table["files.example.com"] = ["93.184.215.14"]

    async def wire(sock: Any, address: Any) -> None:
        if address[0] == "93.184.215.14":
            dialled.append((address[0], address[1]))
            address = ("127.0.0.1", port)
        await really(sock, address)

    monkeypatch.setattr(loop, "sock_connect", wire)
    async with server:
        yield Internet(names, site, port, dialled)
        server.close()
