from typing import Any

import grpc
import jwt
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bos_chassis.auth.callers import (
    AnyOf,
    Attempt,
    Principal,
    RunTokenSigner,
    RunTokenVerifier,
    StaticKey,
    authenticator_from,
    current_principal,
    generate_keypair,
)
from bos_chassis.channels import translate_rpc_errors
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


def test_an_expired_token_is_refused(verifier: RunTokenVerifier) -> None:
    with pytest.raises(Unauthenticated) as caught:
        verifier.verify(mint(ttl_s=-60))
    assert caught.value.reason == "RUN_TOKEN_EXPIRED"


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


def test_a_token_for_another_service_is_refused(verifier: RunTokenVerifier) -> None:
    with pytest.raises(Unauthenticated):
        verifier.verify(mint(audiences=["sandbox"]))


def test_a_token_of_another_signer_is_refused(verifier: RunTokenVerifier) -> None:
    forged = RunTokenSigner(generate_keypair()[0]).mint("u1", "r1", "s", ["sql"], 60)
    with pytest.raises(Unauthenticated):
        verifier.verify(forged)


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


def test_keys_can_be_rotated() -> None:
    old_private, old_public = generate_keypair()
    verifier = RunTokenVerifier([PUBLIC + old_public], "sql")
    old = RunTokenSigner(old_private).mint("u1", "r1", "s", ["sql"], 60)
    assert verifier.verify(old).user_id == verifier.verify(mint()).user_id == "u1"


def test_the_memory_of_verified_tokens_is_bounded(
    verifier: RunTokenVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bos_chassis.auth.callers._VERIFIED_TOKENS", 3)
    for number in range(10):
        verifier.verify(mint(step=str(number)))
    assert len(verifier._verified) == 3


@pytest.mark.parametrize("text", ["", "nonsense", "-----BEGIN PUBLIC KEY-----\nAAAA\n"])
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
        assert principal is not None
        assert principal.kind == kind
    assert await either.authenticate({}) is None
    with pytest.raises(Unauthenticated):
        await either.authenticate({**with_key, "bos-run-token": "forged"})


async def test_settings_make_the_authenticator() -> None:
    assert authenticator_from(AuthSettings(), "sql") is None
    both = authenticator_from(AuthSettings(static_key=KEY, run_token_public_keys=PUBLIC), "sql")
    assert both is not None
    assert await both.authenticate({"bos-run-token": mint()}) is not None


async def test_anonymous_calls_are_refused_and_callers_identified(
    start: Any, echo: Any, verifier: RunTokenVerifier
) -> None:
    async def who(request: Any, context: Any) -> Any:
        return echo(text=str(getattr(current_principal(), "run_id", None)))

    running = await start(put=who, auth=verifier)
    with pytest.raises(Unauthenticated) as caught, translate_rpc_errors():
        await running.stub.put(echo())
    assert caught.value.reason == "CREDENTIAL_MISSING"
    with pytest.raises(Unauthenticated), translate_rpc_errors():
        await running.stub.put(echo(), metadata=(("bos-run-token", "forged"),))
    reply = await running.stub.put(echo(), metadata=(("bos-run-token", mint()),))
    assert reply.text == "r1"


async def test_streams_are_authenticated_too(start: Any, echo: Any) -> None:
    running = await start(auth=StaticKey(KEY))
    with pytest.raises(Unauthenticated), translate_rpc_errors():
        await running.stub.watch(echo(count=1)).read()
    metadata = (("authorization", f"Bearer {KEY}"),)
    got = [m.count async for m in running.stub.watch(echo(count=2), metadata=metadata)]
    assert got == [0, 1]


async def test_health_needs_no_authentication(start: Any) -> None:
    running = await start(auth=StaticKey(KEY))
    async with grpc.aio.insecure_channel(running.server.address) as channel:
        reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert reply.status == health_pb2.HealthCheckResponse.SERVING
