"""An identity service on a fresh database, and clients that call it as users."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import grpc
import pytest

import bos.identity.v1 as contracts
from bos.audit.v1 import AuditServiceStub
from bos.identity.v1 import (
    AccountServiceStub,
    AdministrationServiceStub,
    ApiKeyServiceStub,
    ConnectionServiceStub,
    CreateInvitationRequest,
    CredentialServiceStub,
    GetUserRequest,
    IdentityServiceStub,
    ListSessionsRequest,
    LogInRequest,
    LogInResponse,
    OpenIdServiceStub,
    RefreshSessionRequest,
    RegisterUserRequest,
    Session,
    Tokens,
    User,
)
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.settings import AuthSettings, ServerSettings, TelemetrySettings
from bos_chassis.telemetry import Telemetry
from bos_errors import Unauthenticated
from bos_identity.service import serve
from bos_identity.settings import IdentitySettings
from bos_identity.signing.key_ring import new_key_encryption_key
from bos_postgres import connect
from bos_testkit.address_tokens import AddressTokens

PASSWORD = "correct horse battery"
KEY = new_key_encryption_key()
# Real argon2, at the least cost there is.
CHEAP = {"argon2_time_cost": 1, "argon2_memory_kib": 8}


REST = AddressTokens()
"""The gateway in front."""


def coming_from(address: str) -> dict[str, str]:
    """Metadata of calls from there, for services that know the gateway."""
    return {"bos_proxy_token": REST.token(address)}


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what the store alone knows."""
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110  Nothing sets an event.
            await asyncio.sleep(0.001)


async def sql(dsn: str, statement: str, *arguments: object) -> Any:
    """The first value that a statement finds in the tables of identity."""
    async with connect(dsn, schema="identity") as connection:
        return await connection.fetchval(statement, *arguments)


@asynccontextmanager
async def locked(dsn: str, statement: str) -> AsyncIterator[Locked]:
    """Hold the locks of a statement until the block is left; other calls run into them."""
    async with connect(dsn, schema="identity") as connection, connect(dsn) as watcher:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(statement)
        yield Locked(connection, transaction, watcher)


@dataclass
class Locked:
    """A transaction under way."""

    connection: asyncpg.Connection[asyncpg.Record]
    transaction: Any
    _watcher: asyncpg.Connection[asyncpg.Record]

    async def waiting(self) -> int:
        """The number of calls that wait for a lock."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        return int(await self._watcher.fetchval(f"{query} AND wait_event_type = 'Lock'"))

    async def until_waiting(self, calls: int = 1) -> None:
        async def wait() -> bool:
            return await self.waiting() == calls

        await until(wait)


async def refused(work: Awaitable[Any]) -> tuple[str, str]:
    """Reason and message of a refusal as unauthenticated."""
    with pytest.raises(Unauthenticated) as error:
        await work
    return error.value.reason, error.value.message


@dataclass
class Caller:
    """Calls one server, with an access token or without."""

    channel: grpc.aio.Channel
    telemetry: Telemetry
    address: str

    async def call(self, method: str, request: Any, token: str = "", **metadata: str) -> Any:
        entries = [(key.replace("_", "-"), value) for key, value in metadata.items()]
        if token:
            entries.append(("authorization", f"Bearer {token}"))
        with translate_rpc_errors():
            return await self.begun(method, request, *entries)

    async def do(self, method: str, token: str = "", /, **fields: Any) -> Any:
        """Call a method with a request of these fields."""
        return await self.call(method, getattr(contracts, f"{method}Request")(**fields), token)

    def begun(self, method: str, request: Any, *entries: tuple[str, str]) -> Any:
        """The call itself, to be cancelled."""
        stub = next(stub for stub in self._stubs() if hasattr(stub, method))
        return getattr(stub, method)(request, metadata=entries, timeout=20)

    def _stubs(self) -> list[Any]:
        stubs = (
            IdentityServiceStub,
            AccountServiceStub,
            AdministrationServiceStub,
            ApiKeyServiceStub,
            ConnectionServiceStub,
            CredentialServiceStub,
            OpenIdServiceStub,
            AuditServiceStub,
        )
        return [stub(self.channel) for stub in stubs]

    async def register(self, username: str = "ada", password: str = PASSWORD, **more: str) -> User:
        fields = {"email": f"{username}@example.com", **more}
        request = RegisterUserRequest(username=username, password=password, **fields)
        return (await self.call("RegisterUser", request)).user

    async def log_in(
        self, username: str = "ada", password: str = PASSWORD, **metadata: str
    ) -> LogInResponse:
        request = LogInRequest(username=username, password=password, client_name="test")
        return await self.call("LogIn", request, **metadata)

    async def refresh(self, refresh_token: str) -> Tokens:
        request = RefreshSessionRequest(refresh_token=refresh_token)
        return (await self.call("RefreshSession", request)).tokens

    async def me(self, token: str) -> User:
        return (await self.call("GetUser", GetUserRequest(), token)).user

    async def sessions(self, token: str) -> list[Session]:
        return list((await self.call("ListSessions", ListSessionsRequest(), token)).sessions)

    async def administrator(self) -> str:
        """Register the first account, and the access token of its session."""
        await self.register("root")
        return (await self.log_in("root")).tokens.access_token

    async def invited(self, token: str, username: str, **rights: list[str]) -> User:
        """A user invited by the administrator with this token."""
        made = await self.call("CreateInvitation", CreateInvitationRequest(**rights), token)
        return await self.register(username, invitation=made.code)

    def metric(self, name: str, **labels: str) -> float:
        return self.telemetry.registry.get_sample_value(name, labels) or 0.0


class Starter:
    """Starts replicas that end with the test."""

    def __init__(self, stack: AsyncExitStack, dsn: str) -> None:
        self.stack = stack
        self.dsn = dsn

    async def __call__(self, **settings: Any) -> Caller:
        telemetry = Telemetry.for_tests("identity")
        given = {
            "server": ServerSettings.load(grace_s=0.1),
            "auth": AuthSettings.load(proxy_public_keys=REST.public_key),
            "telemetry": TelemetrySettings.load(),
            "store_url": self.dsn,
            "key_encryption_keys": KEY,
            **CHEAP,
            **settings,
        }
        server = await self.stack.enter_async_context(
            serve(IdentitySettings.load(**given), telemetry)
        )
        channel = await self.stack.enter_async_context(grpc.aio.insecure_channel(server.address))
        return Caller(channel, telemetry, server.address)
