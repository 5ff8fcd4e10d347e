"""Which run tokens which service takes, and tokens whose step has ended."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bos.gateway.v1 import (
    CheckRunTokenResponse,
    RunTokenServiceServicer,
    add_RunTokenServiceServicer_to_server,
)
from bos_chassis.auth import run_token_checks
from bos_chassis.auth.callers import (
    RUN_TOKEN_KEY,
    Attempt,
    RunTokenSigner,
    RunTokenVerifier,
    StaticKey,
    current_principal,
    generate_keypair,
)
from bos_chassis.auth.run_token_checks import REMEMBERED_S, RunTokenChecks, open_run_tokens
from bos_chassis.channels import Channels
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import Unauthenticated, Unavailable

pytestmark = pytest.mark.security

PRIVATE, PUBLIC = generate_keypair()
SIGNER = RunTokenSigner(PRIVATE)
SERVICE = "bos.gateway.v1.RunTokenService"
DAY_S = 86_400.0  # some are made when this file is read, long before their test runs


def of_step(*audiences: str, ttl_s: float = DAY_S, **claims: Any) -> str:
    return SIGNER.mint("ada", "r1", "r1/0/a", audiences, ttl_s, **claims)


def of_gateway(*audiences: str, run: str = "r1") -> str:
    return SIGNER.mint("ada", run, "", audiences, DAY_S)


TOKENS = {
    "own call": of_gateway("here"),
    "own call outside of a run": of_gateway("here", run=""),
    "own call for two": of_gateway("here", "there"),
    "step for here": of_step("here", "there"),
    "step let through to here": of_step("there", "here"),
    "reading ahead": SIGNER.mint(
        "ada", "r1", "", ["here"], DAY_S, use="step", attempt=Attempt(1, 1)
    ),
    "own call elsewhere": of_gateway("there"),
    "step elsewhere": of_step("there"),
}
TAKEN = {
    "service": {"own call", "own call outside of a run"},
    "step": {"step for here", "step let through to here", "reading ahead"},
    "agent": {"own call", "own call outside of a run", "step for here", "reading ahead"},
}


@pytest.mark.parametrize("accepts", TAKEN)
def test_each_service_takes_the_tokens_that_are_meant_for_it(accepts: Any) -> None:
    verifier, taken = RunTokenVerifier([PUBLIC], "here", accepts), set()
    for name, token in TOKENS.items():
        try:
            verifier.verify(token)
        except Unauthenticated:
            continue
        taken.add(name)
    assert taken == TAKEN[accepts]


def test_token_names_groups_and_attempt() -> None:
    token = of_step("here", groups=["sales", "analysts"], attempt=Attempt(3, 17))
    principal = RunTokenVerifier([PUBLIC], "here").verify(token)
    assert principal.groups == {"sales", "analysts"}
    assert principal.attempt == Attempt(3, 17)
    assert principal.roles == frozenset()
    assert RunTokenVerifier([PUBLIC], "here").verify(of_step("here")).groups == frozenset()


@pytest.mark.parametrize(
    "changes",
    [
        {"use": "everything"},
        {"run": ""},
        {"epoch": -1},
        {"epoch": True},
        {"seq": 2**63},
        {"aud": "here"},
        {"groups": "sales"},
        {"groups": ["x" * 65]},
        {"groups": ["\u202e"]},
        {"groups": [str(number) for number in range(65)]},
    ],
)
def test_claims_that_the_gateway_does_not_write_are_refused(changes: dict[str, Any]) -> None:
    assert RunTokenVerifier([PUBLIC], "here").verify(changed())
    with pytest.raises(Unauthenticated):
        RunTokenVerifier([PUBLIC], "here").verify(changed(**changes))


def changed(**changes: Any) -> str:
    """A token of a step with other claims, signed by the gateway."""
    claims = jwt.decode(of_step("here"), options={"verify_signature": False})
    headers = jwt.get_unverified_header(of_step("here"))
    key: Any = load_pem_private_key(PRIVATE.encode(), None)
    return jwt.encode({**claims, **changes}, key, algorithm="EdDSA", headers=headers)


def test_as_many_groups_as_there_may_be_fit_and_more_are_refused() -> None:
    most = [f"{number:02}" + "g" * 62 for number in range(64)]
    token = of_step("here", groups=most)
    assert RunTokenVerifier([PUBLIC], "here").verify(token).groups == set(most)
    for groups in ([*most, "another"], ["g" * 65], ["\n"]):
        with pytest.raises(ValueError, match="groups exceed a run token"):
            of_step("here", groups=groups)


class Asked(RunTokenServiceServicer):
    """Stands for the gateway: says of tokens what the test says."""

    def __init__(self) -> None:
        self.under_way = True
        self.times = 0

    async def CheckRunToken(self, request: Any, context: Any) -> CheckRunTokenResponse:
        principal = current_principal()
        assert principal.step_key == "r1/0/a"
        self.times += 1
        return CheckRunTokenResponse(under_way=self.under_way)


class Clock:
    """Stands for both clocks of the module under test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.past_s = 0.0
        monkeypatch.setattr(run_token_checks, "time", self)
        self._monotonic, self._time = time.monotonic(), time.time()

    def monotonic(self) -> float:
        return self._monotonic + self.past_s

    def time(self) -> float:
        return self._time + self.past_s


@asynccontextmanager
async def asked_gateway() -> AsyncIterator[tuple[Asked, str]]:
    gateway = Asked()
    offered = Servicer(
        gateway,
        add_RunTokenServiceServicer_to_server,
        SERVICE,
        auth=RunTokenVerifier([PUBLIC], None),
    )
    settings, telemetry = ServerSettings.load(grace_s=0.1), Telemetry.for_tests("gateway")
    # A static key is accepted, except by methods that are for run tokens.
    auth = StaticKey("k" * 16)
    async with grpc_server(settings, [offered], telemetry=telemetry, auth=auth) as server:
        yield gateway, server.address


def auth_settings(target: str, **more: Any) -> AuthSettings:
    return AuthSettings.load(
        static_key=None, run_token_public_keys=PUBLIC, run_token_check_target=target, **more
    )


async def test_token_of_an_ended_step_is_refused_within_two_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    telemetry, clock, metadata = (
        Telemetry.for_tests("mcp_db"),
        Clock(monkeypatch),
        {RUN_TOKEN_KEY: of_step("agent", "mcp_db")},
    )
    async with (
        asked_gateway() as (gateway, target),
        open_run_tokens(auth_settings(target), "mcp_db", telemetry) as auth,
    ):
        for _ in range(3):
            assert await auth.authenticate(metadata)
        assert gateway.times == 1
        gateway.under_way = False
        clock.past_s = REMEMBERED_S - 0.01
        assert await auth.authenticate(metadata)
        clock.past_s = REMEMBERED_S + 0.01
        gateway_asked = gateway.times
        for _ in range(3):
            with pytest.raises(Unauthenticated) as refused:
                await auth.authenticate(metadata)
            assert refused.value.reason == "RUN_TOKEN_STEP_ENDED"
            # An ended step stays ended, and the gateway is not called again.
            gateway.under_way = True
            clock.past_s += 100
        assert gateway.times == gateway_asked + 1
        assert REMEMBERED_S <= 2


@pytest.mark.parametrize(
    ("seconds", "reason"),
    [
        ({"iat": 2}, None),
        ({"iat": 3}, "RUN_TOKEN_INVALID"),
        ({"nbf": 2}, None),
        ({"nbf": 3}, "RUN_TOKEN_INVALID"),
        ({"exp": -1}, None),
        ({"exp": -2}, "RUN_TOKEN_EXPIRED"),
    ],
)
def test_gateways_clock_may_differ_by_two_seconds_and_no_more(
    seconds: dict[str, int], reason: str | None, stopped_clock: int
) -> None:
    token = changed(**{name: stopped_clock + each for name, each in seconds.items()})
    if reason is None:
        assert RunTokenVerifier([PUBLIC], "here").verify(token).user_id == "ada"
        return
    with pytest.raises(Unauthenticated) as refused:
        RunTokenVerifier([PUBLIC], "here").verify(token)
    assert refused.value.reason == reason


async def test_calls_of_the_gateway_itself_are_not_asked_about() -> None:
    telemetry = Telemetry.for_tests("agent")
    settings = auth_settings("127.0.0.1:1")
    async with open_run_tokens(settings, "agent", telemetry, accepts="agent") as auth:
        assert await auth.authenticate({RUN_TOKEN_KEY: of_gateway("agent", run="")})
        assert await auth.authenticate({}) is None


@pytest.mark.parametrize("required", [True, False])
async def test_a_gateway_that_does_not_answer(required: bool) -> None:
    telemetry = Telemetry.for_tests("mcp_db")
    settings = auth_settings("127.0.0.1:1", run_token_check_required=required)
    async with open_run_tokens(settings, "mcp_db", telemetry) as auth:
        call = auth.authenticate({RUN_TOKEN_KEY: of_step("mcp_db")})
        if required:
            with pytest.raises(Unavailable) as refused:
                await call
            assert refused.value.reason == "RUN_TOKEN_NOT_CHECKED"
        else:
            assert await call
    assert [entry["event"] for entry in telemetry.logs] == ["run token not checked"]


async def test_gateway_that_refuses_token_has_said_that_it_is_over() -> None:
    telemetry, another = Telemetry.for_tests("mcp_db"), generate_keypair()
    token = RunTokenSigner(another[0]).mint("ada", "r1", "r1/0/a", ["mcp_db"], 60)
    async with asked_gateway() as (_, target):
        settings = auth_settings(target).model_copy(
            update={"run_token_public_keys": another[1], "run_token_check_required": False}
        )
        async with open_run_tokens(settings, "mcp_db", telemetry) as auth:
            with pytest.raises(Unauthenticated):
                await auth.authenticate({RUN_TOKEN_KEY: token})


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_token_checks, "_MAX_REMEMBERED", 3)
    telemetry = Telemetry.for_tests("mcp_db")
    async with asked_gateway() as (gateway, target), Channels(telemetry) as channels:
        checks = RunTokenChecks(
            channels, lambda: target, refuse_unchecked=True, telemetry=telemetry
        )
        tokens = [of_step("mcp_db", attempt=Attempt(1, number)) for number in range(5)]
        for token in tokens:
            await checks.require(token, 1e12)
        assert gateway.times == 5
        for token in tokens[-3:]:
            await checks.require(token, 1e12)
        assert gateway.times == 5
        # Equal questions at once are one.
        await asyncio.gather(*(checks.require(token, 1e12) for token in tokens[:2] * 20))
        assert gateway.times == 7


async def test_own_authenticator_of_a_service_excludes_other_callers() -> None:
    async with asked_gateway() as (gateway, target), grpc.aio.insecure_channel(target) as channel:
        call: Any = channel.unary_unary(
            f"/{SERVICE}/CheckRunToken", response_deserializer=CheckRunTokenResponse.FromString
        )
        for metadata in ((), (("authorization", "Bearer " + "k" * 16),)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(b"", timeout=60, metadata=metadata)
            assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert (await call(b"", timeout=60, metadata=((RUN_TOKEN_KEY, of_step("x")),))).under_way
        assert gateway.times == 1
