"""Stored tokens: refreshed in time, by one process at a time, private to the user."""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from bos.identity.v1 import (
    GetUserResponse,
    IdentityServiceServicer,
    LogInResponse,
    LogOutResponse,
    RefreshSessionResponse,
    RegisterUserResponse,
    SignIn,
    SignInMethod,
    Tokens,
    User,
    add_IdentityServiceServicer_to_server,
)
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_client.sign_in import SignedIn, StoredTokens, TokenFile
from bos_errors import Unauthenticated
from bos_errors import Unauthenticated as Refused
from bos_testkit.scripted_gateway import KEY, Gateway

pytestmark = pytest.mark.process

BOS = Path(sys.executable).with_name("bos")
TARGET = "gateway:1"
ADA = User(
    username="ada",
    email="ada@example.com",
    display_name="Ada L.",
    sign_in=SignIn(
        method=SignInMethod.SIGN_IN_METHOD_PASSWORD,
        expire_time=Timestamp(seconds=4_000_000_000),
    ),
)


@dataclass
class Identity(IdentityServiceServicer):
    """Issues tokens, each refresh token good for one use."""

    life_s: int = 600
    access_token: str = ""
    """What it issues as access token; numbered ones if empty."""
    issued: int = 0
    good: set[str] = field(default_factory=set)
    ended: list[str] = field(default_factory=list)
    credentials: list[Any] = field(default_factory=list)
    address: str = ""
    used: asyncio.Event = field(default_factory=asyncio.Event)
    may_answer: asyncio.Event | None = None
    """If set, what a refresh waits for once its token is used."""

    def tokens(self) -> Tokens:
        self.issued += 1
        tokens = Tokens(
            access_token=self.access_token or f"access {self.issued}",
            refresh_token=f"refresh {self.issued}",
        )
        tokens.access_token_lifetime.FromSeconds(self.life_s)
        self.good.add(tokens.refresh_token)
        return tokens

    async def RegisterUser(self, request: Any, context: Any) -> RegisterUserResponse:
        self.credentials.append((request.username, request.email, request.password))
        return RegisterUserResponse(user=ADA)

    async def LogIn(self, request: Any, context: Any) -> LogInResponse:
        self.credentials.append((request.username, request.password))
        return LogInResponse(tokens=self.tokens(), user=ADA)

    async def RefreshSession(self, request: Any, context: Any) -> RefreshSessionResponse:
        if request.refresh_token not in self.good:
            raise Refused("The token is not valid, or no longer.", reason="TOKEN_INVALID")
        self.good.remove(request.refresh_token)
        self.used.set()
        if self.may_answer is not None:
            await self.may_answer.wait()
        return RefreshSessionResponse(tokens=self.tokens())

    async def LogOut(self, request: Any, context: Any) -> LogOutResponse:
        self.ended.append(request.refresh_token)
        return LogOutResponse()

    async def GetUser(self, request: Any, context: Any) -> GetUserResponse:
        self.credentials.append(dict(context.invocation_metadata())["authorization"])
        return GetUserResponse(user=ADA)


@pytest.fixture
async def identity() -> AsyncIterator[Identity]:
    async with AsyncExitStack() as stack:
        servicer = Identity()
        name = "bos.identity.v1.IdentityService"
        server = await stack.enter_async_context(
            grpc_server(
                ServerSettings.load(grace_s=0.0, port=0),
                [Servicer(servicer, add_IdentityServiceServicer_to_server, name)],
                telemetry=Telemetry.for_tests("identity"),
            )
        )
        servicer.address = server.address
        yield servicer


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "bos" / "tokens.json")


def keep(file: TokenFile, identity: Identity) -> None:
    file.write(
        TARGET, SignedIn.of(identity.address, "ada", identity.tokens(), memory_target="memory:1")
    )


async def test_a_token_is_used_until_it_is_time_for_another(
    file: TokenFile, identity: Identity
) -> None:
    keep(file, identity)
    tokens = StoredTokens(file, TARGET)
    assert await tokens.access_token() == await tokens.access_token() == "access 1"
    identity.life_s = 0
    keep(file, identity)
    identity.life_s = 600
    assert await tokens.access_token() == await tokens.access_token() == "access 3"


async def test_of_many_that_need_a_new_token_one_gets_it_for_all(
    file: TokenFile, identity: Identity
) -> None:
    identity.life_s = 0
    keep(file, identity)
    identity.life_s = 600
    found = await asyncio.gather(*(StoredTokens(file, TARGET).access_token() for _ in range(8)))
    assert found == ["access 2"] * 8


async def test_session_ended_elsewhere_is_reported_and_its_tokens_deleted(
    file: TokenFile, identity: Identity
) -> None:
    identity.life_s = 0
    keep(file, identity)
    identity.good.clear()
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            await StoredTokens(file, TARGET).access_token()
    assert file.read(TARGET) is None


async def test_tokens_of_an_interrupted_refresh_are_kept(
    file: TokenFile, identity: Identity
) -> None:
    identity.life_s = 0
    keep(file, identity)
    identity.life_s = 600
    identity.may_answer = asyncio.Event()
    asking = asyncio.create_task(StoredTokens(file, TARGET).access_token())
    await identity.used.wait()
    asking.cancel()
    await asyncio.sleep(0)  # it hears of it
    identity.may_answer.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await StoredTokens(file, TARGET).access_token() == "access 2"


async def test_second_interrupt_ends_a_refresh_at_once(file: TokenFile, identity: Identity) -> None:
    identity.life_s = 0
    keep(file, identity)
    identity.may_answer = asyncio.Event()
    asking = asyncio.create_task(StoredTokens(file, TARGET).access_token())
    await identity.used.wait()
    for _ in range(2):
        asking.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await asking
    kept = file.read(TARGET)
    assert kept is not None
    assert kept.refresh_token == "refresh 1"


def test_the_token_file_is_private(file: TokenFile, identity: Identity) -> None:
    keep(file, identity)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    kept = file.read(TARGET)
    assert kept is not None
    assert "access 1" not in repr(kept)
    assert "refresh 1" not in repr(kept)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"gateway:1": {"username": "ada"}}'])
def test_an_invalid_file_is_an_empty_one(file: TokenFile, content: str, identity: Identity) -> None:
    file.path.parent.mkdir()
    file.path.write_text(content)
    assert file.read(TARGET) is None
    keep(file, identity)
    assert file.read(TARGET) is not None


async def test_a_client_asks_for_a_token_with_every_call(gateway: Gateway) -> None:
    class Fresh:
        asked = 0

        async def access_token(self) -> str:
            self.asked += 1
            return KEY

    tokens = Fresh()
    async with BosClient(gateway.address, tokens=tokens) as bos:
        await bos.agents()
        assert [event async for event in bos.ask_stream("Who leads?")]
    assert tokens.asked == 2


async def run(home: Path, gateway: Gateway, identity: Identity, *arguments: str) -> tuple[int, str]:
    """One command, with the password on its standard input; its code and what it said."""
    process = await asyncio.create_subprocess_exec(
        *(BOS, *arguments),
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "BOS_TARGET": gateway.address,
            "BOS_IDENTITY_TARGET": identity.address,
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        cwd=home,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate(b"secret\n")
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_signing_in_asking_and_signing_out(
    tmp_path: Path, gateway: Gateway, identity: Identity
) -> None:
    identity.access_token = KEY  # what the gateway of these tests accepts

    async def bos(*arguments: str) -> tuple[int, str]:
        return await run(tmp_path, gateway, identity, *arguments)

    code, said = await bos("agents")
    assert code == 2
    assert "bos login" in said
    assert (await bos("register", "ada", "--email", "a@example.com", "--password-stdin"))[0] == 0
    assert identity.credentials == [("ada", "a@example.com", "secret")]
    code, said = await bos("login", "ada", "--password-stdin")
    assert (code, "as ada" in said) == (0, True)
    assert identity.credentials[-1] == ("ada", "secret")
    assert (await bos("agents"))[0] == 0
    assert await bos("whoami") == (
        0,
        f"Ada L. (ada), ada@example.com, at {gateway.address}\n"
        "Signed in with the password, until 2096-10-02 07:06 UTC unless used before\n"
        "Agents: sql, web\nTables of company: orders, sales_*\n",
    )
    assert identity.credentials[-1] == f"Bearer {KEY}"
    assert await bos("logout") == (0, "Signed out.\n")
    assert identity.ended == ["refresh 1"]
    assert (await bos("agents"))[0] == 2
    assert await bos("logout") == (0, "No user is signed in.\n")
