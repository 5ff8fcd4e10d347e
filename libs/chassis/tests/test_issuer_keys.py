"""Keys that verify access tokens: which are taken, where they come from, and when they are new."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from token_issuer import Issuer, accepts, key_file, opened

from bos.identity.v1 import (
    GetJsonWebKeySetResponse,
    IdentityServiceServicer,
    JsonWebKey,
    add_IdentityServiceServicer_to_server,
)
from bos_chassis.auth.jwks import KeySet, verifying_keys
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError, Unauthenticated, Unavailable


def test_keys_that_must_not_verify_are_left_out() -> None:
    good, small = Issuer(), rsa.generate_private_key(65537, 1024)
    weak = json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(small.public_key()))
    keys = [
        good.jwk,
        {"kty": "oct", "k": "c2VjcmV0", "kid": "shared secret"},
        {**Issuer().jwk, "kid": "for encrypting", "use": "enc"},
        {**Issuer().jwk, "kid": "private", "d": "AAAA"},
        {**Issuer().jwk, "kid": "another algorithm", "alg": "HS256"},
        {**Issuer().jwk, "kid": "broken", "x": "AAAA"},
        {k: v for k, v in Issuer().jwk.items() if k != "kid"},
        {**weak, "kid": "weak"},
    ]
    telemetry = Telemetry.for_tests("keys")
    assert list(verifying_keys(keys, telemetry.logger("keys"))) == ["k1"]
    assert [entry["position"] for entry in telemetry.logs] == [5]  # the broken one


@pytest.mark.parametrize(
    "ill_formed",
    [
        {**Issuer().jwk, "kid": "k2", "crv": ["Ed25519"]},
        {**Issuer("RS256").jwk, "kid": "k2", "n": None},
        {**Issuer("ES256").jwk, "kid": "k2", "y": []},
        None,
    ],
)
async def test_an_ill_formed_key_spoils_no_other(ill_formed: Any, tmp_path: Path) -> None:
    issuer = Issuer()
    file = key_file(tmp_path, ill_formed, issuer.jwk)
    async with opened(jwks_file=file) as (authenticator, telemetry):
        assert (await accepts(authenticator, issuer.token())).user_id == "u1"
    assert [entry["event"] for entry in telemetry.logs].count("key skipped") == 1


class Keys:
    """A source of keys that counts its calls, and fails on demand."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.keys: Sequence[dict[str, Any]] = keys
        self.fetched = 0
        self.failing = False

    async def __call__(self) -> Sequence[dict[str, Any]]:
        self.fetched += 1
        await asyncio.sleep(0)
        if self.failing:
            raise Unavailable("away")
        return self.keys


def key_set(source: Keys, **options: Any) -> KeySet:
    log = Telemetry.for_tests("keys").logger("keys")
    return KeySet(source, log=log, **{"max_age_s": 300.0, "pause_s": 600.0, **options})


async def test_unknown_key_ids_make_for_one_fetch() -> None:
    source = Keys(Issuer().jwk)
    async with key_set(source) as keys:
        found = await asyncio.gather(*(keys.find(f"made up {n}") for n in range(50)))
        assert found == [None] * 50
        assert await keys.find("k1") is not None
    assert source.fetched == 1


async def test_a_new_key_is_found_once_the_pause_is_over() -> None:
    source = Keys(Issuer().jwk)
    async with key_set(source, pause_s=0.0) as keys:
        assert await keys.find("k1") is not None
        source.keys = [Issuer(key_id="k2").jwk]
        assert await keys.find("k2") is not None
        assert await keys.find("k1") is None  # withdrawn with the same fetch


async def test_known_keys_serve_while_their_issuer_is_away() -> None:
    source = Keys(Issuer().jwk)
    async with key_set(source, max_age_s=1e-9, pause_s=0.0) as keys:
        assert await keys.find("k1") is not None
        source.failing = True
        assert await keys.find("k1") is not None


@pytest.mark.parametrize("pause_s", [0.0, 600.0])
async def test_unknown_key_is_outage_while_its_issuer_is_away(pause_s: float) -> None:
    source = Keys(Issuer().jwk)
    async with key_set(source, max_age_s=1e-9, pause_s=0.0) as keys:
        assert await keys.find("k2") is None  # the issuer answers, and has none
        source.failing = True
        for _ in range(2):
            with pytest.raises(Unavailable) as away:
                await keys.find("k2")
            assert away.value.reason == "KEYS_UNAVAILABLE"
            keys._pause_s = pause_s  # the second time there may be no call
        source.failing = False
        keys._pause_s = 0.0
        assert await keys.find("k2") is None
    assert source.fetched == (4 if pause_s == 0.0 else 3)


async def test_issuer_that_never_answered_is_outage_and_no_refusal(tmp_path: Path) -> None:
    async with opened(jwks_file=tmp_path / "missing.json") as (authenticator, _):
        with pytest.raises(Unavailable) as away:
            await accepts(authenticator, Issuer().token())
    assert away.value.reason == "KEYS_UNAVAILABLE"
    assert away.value.retry_after_s


class Identity(IdentityServiceServicer):
    """Publishes the keys of an issuer."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer

    async def GetJsonWebKeySet(self, request: Any, context: Any) -> GetJsonWebKeySetResponse:
        return GetJsonWebKeySetResponse(keys=[JsonWebKey(**self.issuer.jwk)])


async def test_keys_come_from_identity_over_grpc() -> None:
    issuer = Issuer()
    name = "bos.identity.v1.IdentityService"
    servicer = Servicer(Identity(issuer), add_IdentityServiceServicer_to_server, name)
    telemetry = Telemetry.for_tests("identity")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            grpc_server(ServerSettings(grace_s=0), [servicer], telemetry=telemetry)
        )
        authenticator, _ = await stack.enter_async_context(opened(identity_target=server.address))
        token = issuer.token(header={"typ": "at+jwt"})
        assert (await accepts(authenticator, token)).user_id == "u1"
        # Identity says of its tokens what they are; anything else that it may sign is none.
        with pytest.raises(Unauthenticated):
            await accepts(authenticator, issuer.token())


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"issuer": None, "identity_target": "127.0.0.1:1"}, "BOS_AUTH_ISSUER"),
        ({"issuer": "bos-identity"}, "BOS_AUTH_IDENTITY_TARGET"),
        # Without an HTTP client, from where a service has one: bos_http.issuer_document.
        ({"issuer": "https://login.example.com"}, "HTTP.*BOS_AUTH_IDENTITY_TARGET"),
        ({"jwks_url": "https://login.example.com/keys"}, "HTTP.*BOS_AUTH_JWKS_FILE"),
    ],
)
async def test_settings_that_cannot_work_name_the_fix(settings: Any, names: str) -> None:
    with pytest.raises(ConfigurationError, match=names):
        async with opened(**settings):
            pass
