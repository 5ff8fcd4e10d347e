from typing import Any

import jwt
import pytest

from bos_chassis.auth.callers import (
    AnyOf,
    Attempt,
    Principal,
    RunTokenSigner,
    RunTokenVerifier,
    StaticKey,
    authenticator_from,
    generate_keypair,
)
from bos_chassis.settings import AuthSettings
from bos_errors import ConfigurationError, Unauthenticated

PRIVATE, PUBLIC = generate_keypair()
KEY = "0123456789abcdef"
SIGNER = RunTokenSigner(PRIVATE)


def mint(**changes: Any) -> str:
    given = {"user": "u1", "run": "r1", "step": "r1/0/s1", "audiences": ["sql"], "ttl_s": 60}
    return SIGNER.mint(**{**given, **changes})


@pytest.fixture
def verifier() -> RunTokenVerifier:
    return RunTokenVerifier([PUBLIC], "sql")


def test_a_valid_token_names_user_run_and_step(verifier: RunTokenVerifier) -> None:
    expected = Principal("u1", "r1", "r1/0/s1", "run_token", attempt=Attempt(), agent="sql")
    token = mint()
    assert verifier.verify(token) == expected
    assert verifier.verify(token) == expected  # from the cache


def test_a_remembered_token_expires_as_well(
    verifier: RunTokenVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = mint(ttl_s=1)
    verifier.verify(token)
    clock = jwt.decode(token, options={"verify_signature": False})["exp"] + 60
    monkeypatch.setattr("bos_chassis.auth.callers.time.time", lambda: clock)
    monkeypatch.setattr("bos_chassis.auth.callers.jwt.decode", _expired)
    with pytest.raises(Unauthenticated, match="expired"):
        verifier.verify(token)


def _expired(*args: Any, **kwargs: Any) -> Any:
    raise jwt.ExpiredSignatureError


def test_a_forged_token_under_a_known_key_id_is_refused(verifier: RunTokenVerifier) -> None:
    claims = jwt.decode(mint(), options={"verify_signature": False})
    key_id = jwt.get_unverified_header(mint())["kid"]
    other, _ = generate_keypair()
    for forged in (
        jwt.encode(claims, other, algorithm="EdDSA", headers={"kid": key_id}),
        jwt.encode(claims, None, algorithm="none", headers={"kid": key_id}),
        jwt.encode(claims, "x" * 32, algorithm="HS256", headers={"kid": key_id}),
        "not.a.token",
        "",
        "x" * 10_000,
    ):
        with pytest.raises(Unauthenticated):
            verifier.verify(forged)


@pytest.mark.parametrize("claim", ["sub", "run", "step", "aud", "exp", "iat", "iss"])
def test_every_claim_is_required(verifier: RunTokenVerifier, claim: str) -> None:
    token = mint()
    claims = jwt.decode(token, options={"verify_signature": False})
    del claims[claim]
    key_id = jwt.get_unverified_header(token)["kid"]
    incomplete = jwt.encode(claims, PRIVATE, algorithm="EdDSA", headers={"kid": key_id})
    with pytest.raises(Unauthenticated):
        verifier.verify(incomplete)


def test_the_memory_of_verified_tokens_is_bounded(
    verifier: RunTokenVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bos_chassis.auth.callers._VERIFIED_TOKENS", 3)
    for number in range(10):
        verifier.verify(mint(step=str(number)))
    assert len(verifier._verified) == 3


@pytest.mark.parametrize("text", ["", "-----BEGIN PUBLIC KEY-----\nAAAA\n"])
def test_unusable_keys_are_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigurationError):
        RunTokenVerifier([text], "sql")
    with pytest.raises(ConfigurationError):
        RunTokenSigner(text)


async def test_static_keys_accept_the_key_and_nothing_else() -> None:
    key = StaticKey(KEY, user_id="u7")
    got = await key.authenticate({"authorization": f"Bearer {KEY}"})
    assert got == Principal("u7", "", "", "static_key", roles=frozenset({"user"}))
    assert await key.authenticate({}) is None
    for wrong in ("Bearer wrong", f"Basic {KEY}", KEY, "", "Bearer ", f"Bearer {KEY}x"):
        with pytest.raises(Unauthenticated):
            await key.authenticate({"authorization": wrong})


async def test_either_credential_will_do_but_none_may_be_wrong(verifier: RunTokenVerifier) -> None:
    either = AnyOf(verifier, StaticKey(KEY))
    with_key, with_token = {"authorization": f"Bearer {KEY}"}, {"bos-run-token": mint()}
    for metadata, kind in (
        (with_key, "static_key"),
        (with_token, "run_token"),
        ({**with_key, **with_token}, "run_token"),
    ):
        principal = await either.authenticate(metadata)
        assert principal.kind == kind
    assert await either.authenticate({}) is None
    with pytest.raises(Unauthenticated):
        await either.authenticate({**with_key, "bos-run-token": "forged"})


async def test_settings_make_the_authenticator() -> None:
    assert authenticator_from(AuthSettings(), "sql") is None
    both = authenticator_from(AuthSettings(static_key=KEY, run_token_public_keys=PUBLIC), "sql")
    assert await both.authenticate({"bos-run-token": mint()}) is not None
