"""What is flooded: protocols of services, what honest callers do there, and how to reach them."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bos.gateway.v1 import ListRunsRequest, OrchestratorServiceStub
from bos.identity.v1 import GetJsonWebKeySetRequest, GetUserRequest, IdentityServiceStub
from bos.memory.v1 import ListConversationsRequest, MemoryServiceStub
from bos_chassis.settings import TlsSettings
from bos_testkit.processes import peak_memory_mb

TIMEOUT_S = 60.0
"""For an honest call, however busy the machine is."""


@dataclass(frozen=True)
class Target:
    """The endpoint of a running service."""

    name: str
    address: str
    pid: int
    key: str
    """Of an honest caller."""
    ca_file: str = ""
    """What vouches for the service; empty where it speaks plain text."""
    cert_file: str = ""
    """What callers show, honest or not, where a certificate is demanded."""
    key_file: str = ""

    @property
    def kind(self) -> str:
        """What it speaks: ``grpc`` or ``http``."""
        return "http" if self.name in _HTTP else "grpc"

    @property
    def method(self) -> str:
        """A method that wants a credential."""
        return _METHODS[self.name]

    @property
    def open_methods(self) -> tuple[str, ...]:
        """Methods that want none."""
        return _OPEN_METHODS.get(self.name, ())

    @property
    def memory_bound_mb(self) -> float:
        """Memory limit of its process under any flood.

        All floods one after another; what the service needs when it is quiet is within.
        """
        return _MEMORY_MB.get(self.name, 600.0)

    def memory_mb(self) -> float:
        """The most memory that its process ever had."""
        return peak_memory_mb(self.pid)

    def tls(self) -> ssl.SSLContext | None:
        """How to reach it over TLS; None where it speaks plain text."""
        if not self.ca_file:
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.cert_file:
            context.load_cert_chain(self.cert_file, self.key_file)
        context.set_alpn_protocols(["h2"] if self.kind == "grpc" else ["http/1.1"])
        return context

    def channel(self) -> grpc.aio.Channel:
        """A gRPC connection of its own."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        if not self.ca_file:
            return grpc.aio.insecure_channel(self.address, options=options)
        own = [Path(file).read_bytes() for file in (self.key_file, self.cert_file) if file]
        credentials = grpc.ssl_channel_credentials(Path(self.ca_file).read_bytes(), *own)
        return grpc.aio.secure_channel(self.address, credentials, options=options)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Honest]:
        """An honest caller with a connection of its own."""
        if self.kind == "http":
            tls = self.tls()
            async with aiohttp.ClientSession(
                base_url=f"{'https' if tls else 'http'}://{self.address}",
                connector=aiohttp.TCPConnector(
                    ssl=tls if tls else True, local_addr=_HONEST_FROM.get(self.name)
                ),
                timeout=aiohttp.ClientTimeout(TIMEOUT_S),
                headers={"Authorization": f"Bearer {self.key}"},
            ) as session:
                yield _OverHttp(session, self)
        else:
            async with self.channel() as channel:
                yield _OverGrpc(channel, self)


class Honest:
    """An honest caller; raises the error if it is refused."""

    async def ask(self) -> None:
        """What people do."""
        raise NotImplementedError

    async def check(self) -> bool:
        """Whether a probe finds the service alive."""
        raise NotImplementedError


@dataclass(frozen=True)
class _OverGrpc(Honest):
    channel: grpc.aio.Channel
    target: Target

    async def ask(self) -> None:
        metadata = (("authorization", f"Bearer {self.target.key}"),)
        await _ASKED[self.target.name](self.channel, metadata)

    async def check(self) -> bool:
        reply = await health_pb2_grpc.HealthStub(self.channel).Check(
            health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S
        )
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


@dataclass(frozen=True)
class _OverHttp(Honest):
    session: aiohttp.ClientSession
    target: Target

    async def ask(self) -> None:
        verb, path, body, headers = _HTTP[self.target.name]
        async with self.session.request(verb, path, json=body, headers=headers) as reply:
            text = await reply.text()
            assert reply.status == 200, (reply.status, text)
            assert '"isError":true' not in text, text

    async def check(self) -> bool:
        async with self.session.get("/healthz") as reply:
            return reply.status == 200


async def _ask_gateway(channel: grpc.aio.Channel, metadata: Any) -> None:
    stub = OrchestratorServiceStub(channel)
    await stub.ListRuns(ListRunsRequest(), timeout=TIMEOUT_S, metadata=metadata)


async def _ask_identity(channel: grpc.aio.Channel, metadata: Any) -> None:
    stub = IdentityServiceStub(channel)
    await stub.GetUser(GetUserRequest(), timeout=TIMEOUT_S, metadata=metadata)
    await stub.GetJsonWebKeySet(GetJsonWebKeySetRequest(), timeout=TIMEOUT_S)


async def _ask_memory(channel: grpc.aio.Channel, metadata: Any) -> None:
    stub = MemoryServiceStub(channel)
    await stub.ListConversations(ListConversationsRequest(), timeout=TIMEOUT_S, metadata=metadata)


_ASKED: Mapping[str, Callable[[grpc.aio.Channel, Any], Awaitable[None]]] = {
    "gateway": _ask_gateway,
    "identity": _ask_identity,
    "memory": _ask_memory,
}
_IDENTITY = "/bos.identity.v1.IdentityService"
_METHODS = {
    "gateway": "/bos.gateway.v1.OrchestratorService/AskStream",
    "identity": f"{_IDENTITY}/GetUser",
    "memory": "/bos.memory.v1.MemoryService/ListMessages",
    "rest": "/v1/runs:ask",
    "mcp_db": "/mcp",
}
_OPEN_METHODS = {
    "identity": (f"{_IDENTITY}/LogIn", f"{_IDENTITY}/GetJsonWebKeySet"),
    "rest": ("/v1/sessions:logIn",),
}
_QUERY = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "mcp_db_query", "arguments": {"query": "SELECT count(*) FROM customers"}},
}
_HTTP: Mapping[str, tuple[str, str, Any, dict[str, str]]] = {
    "rest": ("GET", "/v1/runs", None, {}),
    "mcp_db": ("POST", "/mcp", _QUERY, {"Accept": "application/json, text/event-stream"}),
}
# It has 256 connections for an address: a client that shares one with honest callers and keeps all
# of them in use refuses new callers of that address, and none elsewhere.
_HONEST_FROM = {"mcp_db": ("127.0.0.2", 0)}
_MEMORY_MB = {"rest": 200.0, "mcp_db": 300.0}


def behind_tls(tls: TlsSettings | None, *, certificate: bool) -> dict[str, str]:
    """What a target says of how it is reached."""
    if tls is None:
        return {}
    shown = {"cert_file": str(tls.cert_file), "key_file": str(tls.key_file)}
    return {"ca_file": str(tls.ca_file), **(shown if certificate else {})}
