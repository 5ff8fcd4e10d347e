"""Peers that connect where TLS is spoken and never say hello, or never end it."""

import asyncio
import ssl
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from mcp_db_rig import service

from bos_chassis.settings import TlsSettings
from bos_mcp_db.service import McpDbServer
from bos_testkit.certificates import Authority
from bos_testkit.waiting import eventually
from bos_webserver.connections import ConnectionLimits, Connections
from bos_webserver.handshakes import Handshake

pytestmark = pytest.mark.security

# What a client begins with, and the first bytes of a hello that never goes on.
PLAIN = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HALF_A_HELLO = bytes.fromhex("1603010200010001fc0303")
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
PATIENT: dict[str, Any] = {"header_timeout_s": 500, "body_timeout_s": 500, "keep_alive_s": 500}


@pytest.fixture
def tls(tmp_path: Path) -> TlsSettings:
    return Authority(tmp_path / "authority").issue("mcp_db")


def open_to_all(tls: TlsSettings) -> dict[str, TlsSettings]:
    """Settings of a server that asks for no certificate of its clients."""
    return {"tls": tls.model_copy(update={"client_certificates": False})}


async def silent(stack: AsyncExitStack, server: McpDbServer, said: bytes) -> asyncio.StreamReader:
    """A client that sends no more than this."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    stack.callback(writer.close)
    writer.write(said)
    return reader


async def ended(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), 60)


async def served(server: McpDbServer, tls: TlsSettings) -> None:
    context = ssl.create_default_context(cafile=str(tls.ca_file))
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(server.host, server.port, ssl=context)
        writer.write(HEALTH)
        assert b"serving" in await reader.read()
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


@pytest.mark.parametrize(
    ("said", "limit"), [(b"", "max_connections"), (HALF_A_HELLO, "max_connections_per_peer")]
)
async def test_two_hundred_who_never_say_hello_make_room(
    sqlite_file: Path, tls: TlsSettings, said: bytes, limit: str
) -> None:
    more = {**PATIENT, limit: 40}
    async with (
        AsyncExitStack() as stack,
        service(sqlite_file, server=open_to_all(tls), **more) as (server, _),
    ):
        clients = []
        for number in range(200):
            clients.append(await silent(stack, server, said))
            if number % 50 == 49:
                await served(server, tls)
        # The oldest made room; no time limit had anything to do with it.
        for reader in clients[:150]:
            await ended(reader)


@pytest.mark.parametrize("said", [b"", HALF_A_HELLO], ids=["nothing", "half a hello"])
async def test_a_stuck_handshake_is_ended(sqlite_file: Path, tls: TlsSettings, said: bytes) -> None:
    soon = {**PATIENT, "header_timeout_s": 0.5}
    async with (
        AsyncExitStack() as stack,
        service(sqlite_file, server=open_to_all(tls), **soon) as (server, _),
    ):
        await ended(await silent(stack, server, said))


async def test_plain_text_is_ended_at_once(sqlite_file: Path, tls: TlsSettings) -> None:
    async with (
        AsyncExitStack() as stack,
        service(sqlite_file, server=open_to_all(tls), **PATIENT) as (server, _),
    ):
        await ended(await silent(stack, server, PLAIN))
        for _ in range(20):
            await served(server, tls)


async def test_a_request_at_the_end_is_answered(sqlite_file: Path, tls: TlsSettings) -> None:
    context = ssl.create_default_context(cafile=str(tls.ca_file))
    async with (
        AsyncExitStack() as stack,
        service(sqlite_file, server=open_to_all(tls), **PATIENT) as (server, _),
    ):
        reader, writer = await asyncio.open_connection(server.host, server.port)
        stack.callback(writer.close)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        async with asyncio.timeout(60):
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    incoming.write(await reader.read(65536))
            client.write(HEALTH)
            writer.write(outgoing.read())  # the last of the handshake, and the request
            answer = b""
            while b"serving" not in answer:
                try:
                    answer += client.read(65536)
                except ssl.SSLWantReadError:
                    incoming.write(await reader.read(65536))


async def test_a_handshake_without_reply_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the peer was gone before it began."""
    given: dict[str, Any] = {}

    async def silence(*_: Any, **how: Any) -> None:
        given.update(how)
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "start_tls", silence)
    shared = Connections(ConnectionLimits(0.1, 60, 60, 60, total=9, per_peer=9), "bos")
    handshake, transport = Handshake(MagicMock(), MagicMock(), shared), MagicMock()
    transport.get_extra_info.return_value = ("127.0.0.1", 1)
    handshake.connection_made(transport)
    assert shared._peers
    await eventually(lambda: transport.abort.called and not shared._peers)
    # Of others the library ends it, in half the time.
    assert given["ssl_handshake_timeout"] == 0.1


def test_what_comes_with_the_end_of_a_handshake_has_a_bound() -> None:
    handshake, transport = Handshake(MagicMock(), MagicMock(), MagicMock()), MagicMock()
    handshake._transport = transport
    handshake.data_received(bytes(256 * 1024))
    transport.abort.assert_not_called()
    handshake.data_received(b"x")
    transport.abort.assert_called_once()
