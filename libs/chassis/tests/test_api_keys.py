"""API keys: looked up once a minute, limited to their scopes, safe from floods of made-up ones."""

import asyncio
from contextlib import suppress
from typing import Any

import jwt
import pytest

from bos_chassis.auth.api_keys import ApiKeyVerifier, key_refused
from bos_chassis.auth.callers import Bearer, Principal, StaticKey
from bos_chassis.auth.scopes import key_and_scopes, require_scope
from bos_chassis.client_address import set_network
from bos_errors import (
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)


def made_up(number: int) -> str:
    return f"bosk_{number:032x}_{'x' * 43}"


GOOD = made_up(7)


class Exchange:
    """Identity, which knows some keys."""

    def __init__(self) -> None:
        self.good = {GOOD}
        self.asked: list[str] = []
        self.now = 1000.0
        self.away = False
        self.unknown_keys_wait: asyncio.Event | None = None

    async def __call__(self, key: str) -> str:
        self.asked.append(key)
        await asyncio.sleep(0)  # so that others come meanwhile, as over a network
        if self.away:
            raise Unavailable("away")
        if key not in self.good:
            if self.unknown_keys_wait is not None:
                await self.unknown_keys_wait.wait()
            raise key_refused()
        return "token of " + key

    async def verify(self, token: str) -> Principal:
        scopes = frozenset({"runs.ask"})
        return Principal("u1", "", "", "api_key", token.removeprefix("token of "), scopes=scopes)

    def verifier(self) -> ApiKeyVerifier:
        return ApiKeyVerifier(self, self.verify, lambda: self.now)


async def test_key_is_cached_for_a_minute() -> None:
    identity = Exchange()
    keys = identity.verifier()
    for _ in range(3):
        assert (await keys.verify(GOOD)).user_id == "u1"
    assert identity.asked == [GOOD]
    identity.good.clear()
    identity.now += 59
    assert (await keys.verify(GOOD)).user_id == "u1"
    identity.now += 1
    with pytest.raises(Unauthenticated):
        await keys.verify(GOOD)


async def test_what_is_no_key_is_remembered_for_seconds() -> None:
    identity = Exchange()
    keys = identity.verifier()
    for _ in range(3):
        with pytest.raises(Unauthenticated) as error:
            await keys.verify(made_up(1))
    assert error.value.reason == "API_KEY_INVALID"
    assert len(identity.asked) == 1
    identity.good.add(made_up(1))
    identity.now += 5
    assert await keys.verify(made_up(1))


@pytest.mark.parametrize(
    "key", ["bosk_x_y", GOOD + "x", GOOD.upper(), GOOD + "\n", "bosk_" + "é" * 76]
)
async def test_what_does_not_look_like_a_key_is_not_looked_up(key: str) -> None:
    identity = Exchange()
    with pytest.raises(Unauthenticated):
        await identity.verifier().verify(key)
    assert identity.asked == []


async def test_that_identity_is_away_is_no_refusal() -> None:
    identity = Exchange()
    keys = identity.verifier()
    identity.away = True
    with pytest.raises(Unavailable):
        await keys.verify(GOOD)
    identity.away = False
    assert await keys.verify(GOOD)


async def test_flood_of_unknown_keys_delays_no_cached_key() -> None:
    identity = Exchange()
    keys = identity.verifier()
    await keys.verify(GOOD)
    identity.now += 60  # so that it has to be looked up again
    identity.unknown_keys_wait = asyncio.Event()
    unknown = [asyncio.create_task(keys.verify(made_up(100 + n))) for n in range(300)]
    await asyncio.sleep(0)
    assert await keys.verify(GOOD)
    assert len(identity.asked) <= 2 + 8  # unknown keys are looked up a few at a time
    with pytest.raises(ResourceExhausted):
        await keys.verify(made_up(99))
    identity.unknown_keys_wait.set()
    for each in unknown:
        with suppress(Unauthenticated, ResourceExhausted):
            await each


async def test_an_unknown_key_does_not_wait_for_floods_from_elsewhere() -> None:
    identity = Exchange()
    keys = identity.verifier()
    identity.unknown_keys_wait = asyncio.Event()

    async def verify(origin: str, key: str) -> Principal:
        set_network(origin)  # seen by this task alone
        return await keys.verify(key)

    flood = [
        asyncio.create_task(verify("203.0.113.7", made_up(100 + n)))
        for n in range(300)  # which are more than may wait
    ]
    await asyncio.sleep(0)
    first = asyncio.create_task(verify("203.0.113.8", GOOD))
    assert (await asyncio.wait_for(first, 60)).user_id == "u1"
    identity.unknown_keys_wait.set()
    ends = await asyncio.gather(*flood, return_exceptions=True)
    assert {type(end) for end in ends} == {Unauthenticated, ResourceExhausted}


async def test_many_calls_with_one_key_at_once_are_one_question() -> None:
    identity = Exchange()
    keys = identity.verifier()
    found = await asyncio.gather(*(keys.verify(GOOD) for _ in range(1000)))
    assert {each.user_id for each in found} == {"u1"}
    assert identity.asked == [GOOD]


async def test_bearer_credential_is_recognised_as_key_or_token() -> None:
    identity = Exchange()

    async def token(text: str) -> Principal:
        return Principal("grace", "", "", "user_token")

    static = StaticKey("bosk_static-key-of-mine", "u0")
    bearer = Bearer(static, token, verify_api_key=identity.verifier().verify)
    found = [
        await bearer.authenticate({"authorization": f"Bearer {credential}"})
        for credential in ("bosk_static-key-of-mine", GOOD, "ey.any.thing")
    ]
    assert [each.user_id for each in found if each is not None] == ["u0", "u1", "grace"]


def caller(*scopes: str) -> Principal:
    return Principal("u1", "", "", "api_key", scopes=frozenset(scopes))


ASK = ("bos.gateway.v1.OrchestratorService", "Ask")


@pytest.mark.parametrize(
    ("principal", "method", "reason"),
    [
        (None, ASK, None),
        (Principal("u1", "", "", "user_token"), ("bos.identity.v1.IdentityService", "New"), None),
        (Principal("u1", "r", "s", "run_token"), ASK, None),
        (caller("runs.read", "runs.ask"), ASK, None),
        (caller(), ("bos.identity.v1.CredentialService", "CheckSession"), None),
        (caller("runs.read"), ASK, "SCOPE_REQUIRED"),
        (caller(), ASK, "SCOPE_REQUIRED"),
        (caller("account"), ("bos.identity.v1.ApiKeyService", "CreateApiKey"), "SIGN_IN_REQUIRED"),
        (caller("account", "people", "any"), ("bos.new.v1.Service", "New"), "SIGN_IN_REQUIRED"),
    ],
)
def test_methods_need_their_scope(
    principal: Principal | None, method: tuple[str, str], reason: str | None
) -> None:
    if reason is None:
        require_scope(principal, *method)
        return
    with pytest.raises(PermissionDenied) as error:
        require_scope(principal, *method)
    assert error.value.reason == reason


def test_the_scopes_of_a_token_are_those_it_names() -> None:
    claims: dict[str, Any] = {"key": "k", "scopes": ["runs.ask"]}
    assert key_and_scopes(claims) == ("k", frozenset({"runs.ask"}))
    assert key_and_scopes({**claims, "scopes": []}) == ("k", frozenset())
    # Of other issuers' tokens one of these may mean anything.
    assert key_and_scopes({"scopes": ["mail"]}) == key_and_scopes({"key": 1}) == ("", None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"scopes": "runs.ask"},
        {"scopes": ["everything"]},
        {"scopes": {"runs.ask": True}},
        {"key": ""},
    ],
)
def test_wrong_scopes_make_a_token_invalid(wrong: dict[str, Any]) -> None:
    with pytest.raises(jwt.InvalidTokenError):
        key_and_scopes({"key": "k", "scopes": ["runs.ask"], **wrong})
