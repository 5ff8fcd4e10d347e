"""Peers of a gRPC server that connect and never say a word."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bos_chassis.server import GrpcServer, grpc_server
from bos_chassis.settings import ServerSettings, TlsSettings
from bos_chassis.telemetry import Telemetry
from bos_testkit.certificates import Authority

pytestmark = pytest.mark.security

_PATIENCE_S = 60


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> TlsSettings:
    if request.param == "plain":
        return TlsSettings()
    given = Authority(tmp_path).issue("crowded")
    return given.model_copy(update={"client_certificates": False})


@asynccontextmanager
async def serving(tls: TlsSettings, **limits: Any) -> AsyncIterator[GrpcServer]:
    settings = ServerSettings.load(grace_s=0, tls=tls, **limits)
    async with grpc_server(settings, [], telemetry=Telemetry.for_tests()) as server:
        yield server


async def silent(stack: AsyncExitStack, server: GrpcServer) -> asyncio.StreamReader:
    reader, writer = await asyncio.open_connection(server.host, server.port)
    stack.callback(writer.close)
    return reader


async def ended(reader: asyncio.StreamReader) -> None:
    """Return once the other side has closed the connection."""
    with suppress(ConnectionError):
        async with asyncio.timeout(_PATIENCE_S):
            while await reader.read(4096):
                pass


async def healthy(server: GrpcServer, tls: TlsSettings) -> bool:
    """Whether a new client is served."""
    channel = (
        grpc.aio.insecure_channel(server.address)
        if tls.ca_file is None
        else grpc.aio.secure_channel(
            server.address, grpc.ssl_channel_credentials(tls.ca_file.read_bytes())
        )
    )
    async with channel:
        try:
            found = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=_PATIENCE_S
            )
        except grpc.aio.AioRpcError:
            return False
    return bool(found.status == health_pb2.HealthCheckResponse.SERVING)


async def test_who_says_nothing_is_sent_away_in_time(tls: TlsSettings) -> None:
    async with AsyncExitStack() as stack, serving(tls, message_timeout_s=0.5) as server:
        clients = [await silent(stack, server) for _ in range(50)]
        await asyncio.gather(*map(ended, clients))
        async with asyncio.timeout(_PATIENCE_S):  # half a second is little for a handshake
            while not await healthy(server, tls):
                pass


async def test_connections_are_counted_before_they_say_a_word(tls: TlsSettings) -> None:
    async with serving(tls, message_timeout_s=500, max_connections=5) as server:
        async with AsyncExitStack() as clients:
            for _ in range(4):
                await silent(clients, server)
            assert await healthy(server, tls)  # there is room for one
            crowded = [await silent(clients, server) for _ in range(3)]
            first = [asyncio.create_task(ended(reader)) for reader in crowded]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED, timeout=_PATIENCE_S)
            assert any(task.done() for task in first)
            for task in first:
                task.cancel()
            await asyncio.gather(*first, return_exceptions=True)
        async with asyncio.timeout(_PATIENCE_S):  # once they have gone there is room again
            while not await healthy(server, tls):
                pass
