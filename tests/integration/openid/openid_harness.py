"""Identity as a relying party of the real provider, and clients that call it."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import grpc

from bos.identity.v1 import (
    AccountServiceStub,
    AdministrationServiceStub,
    BeginOpenIdLogInRequest,
    BeginOpenIdLogInResponse,
    FinishOpenIdLogInRequest,
    FinishOpenIdLogInResponse,
    GetUserRequest,
    IdentityServiceStub,
    LogInRequest,
    LogInResponse,
    OpenIdServiceStub,
    RegisterUserRequest,
)
from bos.identity.v1 import User as UserMessage
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.settings import AuthSettings, ServerSettings, TelemetrySettings
from bos_chassis.telemetry import Telemetry
from bos_identity.openid.settings import OpenIdSettings
from bos_identity.service import serve
from bos_identity.settings import IdentitySettings
from bos_identity.signing.key_ring import new_key_encryption_key

from .issuer_harness import CALLBACK, Issuer

PASSWORD = "correct horse battery"
KEY = new_key_encryption_key()
CHEAP = {"argon2_time_cost": 1, "argon2_memory_kib": 8}


@dataclass(frozen=True)
class Harness:
    channel: grpc.aio.Channel
    address: str
    issuer: Issuer
    telemetry: Telemetry

    async def call(self, method: str, request: Any, token: str = "") -> Any:
        stubs: list[Any] = [
            stub(self.channel)
            for stub in (
                AccountServiceStub,
                AdministrationServiceStub,
                IdentityServiceStub,
                OpenIdServiceStub,
            )
        ]
        stub = next(each for each in stubs if hasattr(each, method))
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        with translate_rpc_errors():
            return await getattr(stub, method)(request, metadata=metadata, timeout=60)

    async def begin(self, redirect_uri: str = CALLBACK) -> BeginOpenIdLogInResponse:
        request = BeginOpenIdLogInRequest(redirect_uri=redirect_uri)
        begun: BeginOpenIdLogInResponse = await self.call("BeginOpenIdLogIn", request)
        return begun

    async def finish(self, handle: str, **came_back: str) -> FinishOpenIdLogInResponse:
        request = FinishOpenIdLogInRequest(
            handle=handle,
            code=came_back.get("code", ""),
            state=came_back.get("state", ""),
            issuer=came_back.get("iss", ""),
            client_name="test",
        )
        finished: FinishOpenIdLogInResponse = await self.call("FinishOpenIdLogIn", request)
        return finished

    async def signed_in(self, subject: str) -> LogInResponse:
        """The session of a user who signs in with a browser."""
        begun = await self.begin()
        async with self.issuer.person(subject) as person:
            came_back = await person.signs_in(begun.authorization_url)
        return (await self.finish(begun.handle, **came_back)).log_in

    async def registered(self, username: str) -> LogInResponse:
        """The session of a user who signs in with a password."""
        register = RegisterUserRequest(
            username=username, email=f"{username}@example.com", password=PASSWORD
        )
        await self.call("RegisterUser", register)
        log_in: LogInResponse = await self.call(
            "LogIn", LogInRequest(username=username, password=PASSWORD)
        )
        return log_in

    async def me(self, token: str) -> UserMessage:
        user: UserMessage = (await self.call("GetUser", GetUserRequest(), token)).user
        return user


@dataclass(frozen=True)
class Builder:
    stack: AsyncExitStack
    dsn: str
    issuer: Issuer

    async def __call__(self, *, files_refresh_s: float = 5.0, **openid: Any) -> Harness:
        telemetry = Telemetry.for_tests("identity")
        given = {"issuer": self.issuer.url, "client_id": "bos", **openid}
        settings = IdentitySettings.load(
            server=ServerSettings.load(grace_s=0.1),
            auth=AuthSettings.load(files_refresh_s=files_refresh_s),
            telemetry=TelemetrySettings.load(),
            store_url=self.dsn,
            key_encryption_keys=KEY,
            account_data_targets={"gateway": "127.0.0.1:1"},  # no server listens
            openid=OpenIdSettings.load(**given),
            **CHEAP,
        )
        server = await self.stack.enter_async_context(serve(settings, telemetry))
        channel = await self.stack.enter_async_context(grpc.aio.insecure_channel(server.address))
        return Harness(channel, server.address, self.issuer, telemetry)
