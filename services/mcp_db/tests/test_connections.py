"""Slow peers and peers with many connections do not keep other clients from being served."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import httpx2
import pytest
import uvicorn
from mcp.client.client import Client
from mcp_db_rig import call, served, service
from uvicorn.server import ServerState

from bos_chassis.concurrency.loop import new_event_loop
from bos_mcp_db.service import McpDbServer
from bos_testkit.waiting import eventually
from bos_webserver.connections import ConnectionLimits, Connections, protocol_of

pytestmark = pytest.mark.security

HALF_A_HEADER = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
HALF_A_BODY = (
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Accept: application/json, text/event-stream\r\nContent-Length: 100000\r\n\r\n{"
)
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
PATIENT: dict[str, Any] = {"header_timeout_s": 500, "body_timeout_s": 500, "keep_alive_s": 500}


class Socket:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        with suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def answer(self, data: bytes) -> bytes:
        """The headers of the answer to it, and its body; the connection stays open."""
        self.writer.write(data)
        headers = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 60)
        length = int(headers.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        await asyncio.wait_for(self.reader.readexactly(length), 60)
        return headers

    async def rest(self) -> bytes:
        """What comes until the other side closes the connection."""
        with suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(), 60)
        return b""


async def connect(stack: AsyncExitStack, server: McpDbServer) -> Socket:
    reader, writer = await asyncio.open_connection(server.host, server.port)
    stack.callback(writer.close)
    return Socket(reader, writer)


async def answered(server: McpDbServer) -> None:
    async with Client(server.url) as client:
        envelope = await call(client, "mcp_db_query", query="SELECT count(*) FROM orders")
    assert envelope["data"] == [[500]]


@pytest.mark.parametrize(
    ("sent", "limit"),
    [
        (b"", "max_connections_per_peer"),
        (HALF_A_HEADER, "max_connections"),
        (HALF_A_BODY, "max_connections"),
        (HEALTH, "max_connections_per_peer"),
    ],
)
async def test_slow_connections_block_no_others(sqlite_file: Path, sent: bytes, limit: str) -> None:
    async with (
        AsyncExitStack() as stack,
        service(sqlite_file, **PATIENT, **{limit: 40}) as (server, _),
    ):
        slow = []
        for number in range(200):
            slow.append(await connect(stack, server))
            await slow[-1].send(sent)
            if number % 50 == 49:
                await answered(server)
        for each in slow:
            await each.send(b"x")
        await answered(server)
        # The oldest made room; the time limits had nothing to do with it.
        await slow[0].rest()


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_peer"])
async def test_idle_connection_of_a_known_client_is_kept(sqlite_file: Path, limit: str) -> None:
    settings = {**PATIENT, limit: 40}
    async with AsyncExitStack() as stack, served(sqlite_file, **settings) as running:
        server, token = running.server, running.token()
        known, anonymous = await connect(stack, server), await connect(stack, server)
        asked = b"DELETE /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nbos-run-token: %s\r\n\r\n"
        assert b" 401 " in await anonymous.answer(asked % b"made-up")
        assert b" 401 " not in await known.answer(asked % token.encode())
        for _ in range(200):
            await (await connect(stack, server)).send(HEALTH)
        await anonymous.rest()
        assert b" 401 " not in await known.answer(asked % token.encode())


@pytest.mark.parametrize(
    ("sent", "limit"),
    [
        (b"", "header_timeout_s"),
        (HALF_A_HEADER, "header_timeout_s"),
        (HALF_A_BODY, "body_timeout_s"),
        (HEALTH, "keep_alive_s"),
        (HEALTH + HALF_A_HEADER, "header_timeout_s"),
    ],
    ids=["nothing", "headers", "body", "idle", "second headers"],
)
async def test_a_stuck_connection_is_closed(sqlite_file: Path, sent: bytes, limit: str) -> None:
    async with (
        AsyncExitStack() as stack,
        service(sqlite_file, **{**PATIENT, limit: 0.2}) as (server, _),
    ):
        slow = await connect(stack, server)
        await slow.send(sent)
        got = await slow.rest()
        assert (b"serving" in got) == (HEALTH in sent)


async def test_a_byte_now_and_then_buys_no_time(sqlite_file: Path) -> None:
    async with (
        AsyncExitStack() as stack,
        service(sqlite_file, **{**PATIENT, "header_timeout_s": 0.5}) as (server, _),
    ):
        slow = await connect(stack, server)
        await slow.send(HALF_A_HEADER)
        ended = asyncio.create_task(slow.rest())
        async with asyncio.timeout(60):
            while not ended.done():
                await slow.send(b"x")
                await asyncio.wait([ended], timeout=0.05)


async def test_connections_in_use_are_not_closed_for_new_ones(sqlite_file: Path) -> None:
    async with (
        AsyncExitStack() as stack,
        service(sqlite_file, **PATIENT, max_connections=3) as (server, _),
        httpx2.AsyncClient() as http,
    ):
        endless = (
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000)"
            " SELECT count(*) FROM n"
        )
        async with Client(server.url) as client:
            asking = asyncio.create_task(call(client, "mcp_db_query", query=endless))
            for _ in range(50):
                await (await connect(stack, server)).send(HALF_A_HEADER)
            assert (await asking)["data"] == [[3_000_000]]
        reply = await http.get(server.url.replace("/mcp", "/healthz"))
        assert reply.status_code == 200


async def test_headers_have_a_size(sqlite_file: Path) -> None:
    async with AsyncExitStack() as stack, service(sqlite_file, **PATIENT) as (server, _):
        small, large = await connect(stack, server), await connect(stack, server)
        end = b"\r\nConnection: close\r\n\r\n"
        await small.send(HEALTH.rstrip() + b"\r\nX-Big: " + b"x" * 20_000 + end)
        assert b"200 OK" in await small.rest()
        # Refused before they end.
        await large.send(HEALTH.rstrip() + b"\r\nX-Big: " + b"x" * 60_000)
        await large.rest()


def test_a_connection_that_ended_is_forgotten() -> None:
    shared = Connections(ConnectionLimits(60, 60, 60, 60, total=9, per_peer=9), "bos")
    connection = MagicMock()
    shared.came(connection, "198.51.100.7")
    shared.know(connection)
    assert shared._known
    shared.went(connection)
    kept = (shared._peers, shared._of_peer, shared._waited_for, shared._known_waited_for)
    assert not any((*kept, shared._known))
    shared.know(connection)
    shared.wait_for(connection)
    assert not any((*kept, shared._known))


async def test_an_answer_that_takes_too_long_ends_its_connection() -> None:
    """As where the peer does not read it."""

    ended = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await ended.wait()

    limits = ConnectionLimits(60, 60, 0.05, 60, total=9, per_peer=9)
    config, state, transport = uvicorn.Config(endless), ServerState(), MagicMock()
    config.load()
    transport.get_extra_info.side_effect = {}.get
    transport.is_closing.return_value = False
    connection = protocol_of(limits, "bos")(config=config, server_state=state, app_state={})
    connection.connection_made(transport)
    assert transport.max_size == 32 * 1024  # of each of many connections
    transport.abort.assert_not_called()
    connection.data_received(HEALTH)
    await eventually(lambda: transport.abort.called)
    connection.connection_lost(None)
    ended.set()
    await asyncio.gather(*state.tasks)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, new_event_loop])
def test_answers_on_every_event_loop_that_a_process_may_have(
    sqlite_file: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Its own process has asyncio's, the standalone has uvloop."""

    async def asked() -> None:
        async with service(sqlite_file) as (server, _):
            await answered(server)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asked())


async def test_the_connections_of_an_ipv6_site_are_counted_together() -> None:
    limits = ConnectionLimits(60, 60, 60, 60, total=100, per_peer=2)
    made = protocol_of(limits, "bos")
    config, state = uvicorn.Config(MagicMock()), ServerState()
    config.load()

    def came(address: str) -> MagicMock:
        transport, socket = MagicMock(), MagicMock()
        socket.getpeername.return_value = (address, 1, 0, 0)
        socket.getsockname.return_value = ("::1", 2, 0, 0)
        transport.get_extra_info.side_effect = {"socket": socket}.get
        made(config=config, server_state=state, app_state={}).connection_made(transport)
        return transport

    other, first, *_ = (
        came(f"2001:db8::{each}") for each in ("1:0:0:0:1", "0:0:0:1", "0:0:0:2", "0:0:0:3")
    )
    first.abort.assert_called_once()
    other.abort.assert_not_called()
    for connection in tuple(made.shared._peers):
        connection.abort()
        made.shared.went(connection)
