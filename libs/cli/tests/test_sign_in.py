"""Stored tokens: refreshed in time, by one process at a time, private to the user."""

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
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
)
from bos_cli.commands.account import _close
from bos_client import BosClient
from bos_client.sign_in import SignedIn, StoredTokens, TokenFile
from bos_errors import BosError, FailedPrecondition, InvalidArgument, Unauthenticated
from bos_testkit.scripted_gateway import KEY, Gateway

from .commands import bos_with_input, serving

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
            raise Unauthenticated("The token is not valid, or no longer.", reason="TOKEN_INVALID")
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
    served = Identity()
    async with serving(served, key="") as served.address:
        yield served


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "bos" / "tokens.json")


def keep(file: TokenFile, identity: Identity) -> None:
    file.write(
        TARGET, SignedIn.of(identity.address, "ada", identity.tokens(), memory_target="memory:1")
    )


async def test_token_is_refreshed_in_time(file: TokenFile, identity: Identity) -> None:
    keep(file, identity)
    tokens = StoredTokens(file, TARGET)
    assert await tokens.access_token() == await tokens.access_token() == "access 1"
    identity.life_s = 0
    keep(file, identity)
    identity.life_s = 600
    assert await tokens.access_token() == await tokens.access_token() == "access 3"


async def test_concurrent_refreshes_are_one(file: TokenFile, identity: Identity) -> None:
    identity.life_s = 0
    keep(file, identity)
    identity.life_s = 600
    found = await asyncio.gather(*(StoredTokens(file, TARGET).access_token() for _ in range(8)))
    assert found == ["access 2"] * 8


async def test_ended_session_deletes_its_tokens(file: TokenFile, identity: Identity) -> None:
    identity.life_s = 0
    keep(file, identity)
    identity.good.clear()
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            await StoredTokens(file, TARGET).access_token()
    assert file.read(TARGET) is None


async def test_interrupted_refresh_keeps_its_tokens(file: TokenFile, identity: Identity) -> None:
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
    assert kept.refresh_token == "refresh 1"


def test_the_token_file_is_private(file: TokenFile, identity: Identity) -> None:
    keep(file, identity)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    kept = file.read(TARGET)
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


async def test_sign_in_ask_sign_out(tmp_path: Path, gateway: Gateway, identity: Identity) -> None:
    identity.access_token = KEY  # what the gateway of these tests accepts

    async def bos(*arguments: str) -> tuple[int, str]:
        environment = {
            "XDG_CONFIG_HOME": str(tmp_path),
            "BOS_TARGET": gateway.address,
            "BOS_IDENTITY_TARGET": identity.address,
        }
        return await bos_with_input("secret\n", *arguments, env=environment)

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


class Account:
    """Stands for identity, which refuses what the test says."""

    def __init__(self, *refusals: BosError) -> None:
        self.refusals = list(refusals)
        self.passwords: list[str] = []

    async def close_account(self, password: str) -> None:
        self.passwords.append(password)
        if self.refusals:
            raise self.refusals.pop(0)


REQUIRED = InvalidArgument("current_password: must be given.", reason="PASSWORD_REQUIRED")
NOT_FRESH = FailedPrecondition("Log in again.", reason="SIGN_IN_NOT_FRESH")


@pytest.mark.parametrize(
    ("refusal", "ask", "passwords"),
    [
        (REQUIRED, True, ["", "typed"]),
        (None, True, [""]),
        (REQUIRED, False, [""]),
        (NOT_FRESH, True, [""]),
    ],
)
async def test_who_has_a_password_is_asked_for_it_and_others_see_the_refusal(
    monkeypatch: pytest.MonkeyPatch, refusal: BosError | None, ask: bool, passwords: list[str]
) -> None:
    prompts: list[str] = []

    def prompt(text: str, **_: Any) -> str:
        prompts.append(text)
        return "typed"

    monkeypatch.setattr(click, "prompt", prompt)
    account: Any = Account(*([refusal] if refusal else []))
    shown = pytest.raises(BosError) if refusal and len(passwords) == 1 else nullcontext()
    with shown as raised:
        await _close(account, "", ask=ask)
    assert raised is None or raised.value is refusal
    assert (account.passwords, prompts) == (passwords, ["Password"] * (len(passwords) - 1))
