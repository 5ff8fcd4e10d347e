"""ID tokens that are not the provider's, not for identity, or not of this sign-in."""

import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from bos_chassis.auth.jwks import KeySet
from bos_chassis.telemetry import Telemetry
from bos_errors import Unauthenticated
from bos_identity.openid.claims import (
    display_name_of,
    email_of,
    groups_of,
    roles_of,
    username_of,
)
from bos_identity.openid.id_tokens import IdTokens

ISSUER, CLIENT, NONCE = "https://issuer.example", "bos", "the nonce"
KEY = generate_private_key(SECP256R1())


@asynccontextmanager
async def verifier(jwk: str | dict[str, Any]) -> AsyncIterator[IdTokens]:
    """ID tokens by a provider whose only key this is."""
    log = Telemetry.for_tests("identity").logger("test")
    public: dict[str, Any] = json.loads(jwk) if isinstance(jwk, str) else jwk

    async def fetch() -> Sequence[Mapping[str, Any]]:
        return [{**public, "kid": "k1"}]

    async with KeySet(fetch, max_age_s=3600, log=log) as keys:
        yield IdTokens(keys, ISSUER, CLIENT, log)


@pytest.fixture
async def id_tokens() -> AsyncIterator[IdTokens]:
    async with verifier(ECAlgorithm.to_jwk(KEY.public_key())) as made:
        yield made


def claims(**other: Any) -> dict[str, Any]:
    now = int(time.time())
    good = {"iss": ISSUER, "sub": "ada", "aud": CLIENT, "iat": now, "exp": now + 600}
    return {**good, "nonce": NONCE, **other}


def signed(key: Any = KEY, algorithm: str = "ES256", kid: str = "k1", **other: Any) -> str:
    given = {name: value for name, value in claims(**other).items() if value is not None}
    return jwt.encode(given, key, algorithm=algorithm, headers={"kid": kid})


def unsigned(algorithm: str) -> str:
    parts = ({"alg": algorithm, "kid": "k1", "typ": "JWT"}, claims())
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()) for part in parts)
    return b".".join(part.rstrip(b"=") for part in encoded).decode() + "."


async def test_valid_id_token_is_accepted(id_tokens: IdTokens) -> None:
    assert (await id_tokens.claims(signed(), NONCE))["sub"] == "ada"
    assert (await id_tokens.claims(signed(aud=[CLIENT], azp=CLIENT), NONCE))["sub"] == "ada"
    assert (await id_tokens.claims(signed(nonce=None), None))["sub"] == "ada"


@pytest.mark.parametrize(
    "lie",
    [
        {"iss": "https://evil.example"},
        {"aud": "other"},
        {"aud": [CLIENT, "other"]},
        {"azp": "other"},
        {"exp": 1},
        {"exp": None},
        {"iat": 4102444800, "exp": 4102445800},
        {"iat": None},
        {"nonce": "another"},
        {"nonce": None},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "a\0b"},
        {"key": generate_private_key(SECP256R1())},
    ],
    ids=lambda lie: "another key" if "key" in lie else str(lie)[:40],
)
async def test_invalid_claim_is_refused(id_tokens: IdTokens, lie: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated) as error:
        await id_tokens.claims(signed(**lie), NONCE)
    assert error.value.reason == "OPENID_REFUSED"


@pytest.mark.security
async def test_unsigned_and_malformed_tokens_are_refused(id_tokens: IdTokens) -> None:
    tokens = [unsigned("none"), unsigned("ES256"), "", "a.b.c", "x" * 70_000]
    for form in (Encoding.PEM, Encoding.DER):  # the public key is no HMAC secret
        public = KEY.public_key().public_bytes(form, PublicFormat.SubjectPublicKeyInfo)
        text = unsigned("HS256").removesuffix(".")
        signature = hmac.digest(public, text.encode(), "sha256")
        tokens.append(f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}")
    for token in tokens:
        with pytest.raises(Unauthenticated):
            await id_tokens.claims(token, NONCE)


async def test_key_verifies_by_its_own_algorithm_only() -> None:
    """The key decides, not the token: RSA keys could verify by nine algorithms."""
    key = generate_rsa_key(65537, 2048)
    async with verifier(RSAAlgorithm.to_jwk(key.public_key())) as id_tokens:
        assert (await id_tokens.claims(signed(key, "RS256"), NONCE))["sub"] == "ada"
        for algorithm in ("RS384", "RS512", "PS256"):
            with pytest.raises(Unauthenticated):
                await id_tokens.claims(signed(key, algorithm), NONCE)


@pytest.mark.parametrize(
    ("given", "username"),
    [
        ({"preferred_username": "Ada.L"}, "Ada.L"),
        ({"preferred_username": "ada@corp.example"}, "ada"),
        ({"email": "grace@corp.example"}, "grace"),
        ({"preferred_username": "Zoë Müller"}, "Zoe-Muller"),
        ({"preferred_username": "local"}, "user"),
        ({"preferred_username": "a" * 500}, "a" * 50),
        ({}, "user"),
    ],
)
def test_usernames(given: dict[str, Any], username: str) -> None:
    assert username_of(given) == username


@pytest.mark.parametrize(
    ("given", "email"),
    [
        ({"email": "a@b.example", "email_verified": True}, "a@b.example"),
        ({"email": "a@b.example"}, None),
        ({"email": "a\u202eb@b.example", "email_verified": True}, None),
        ({"email": "no address", "email_verified": True}, None),
    ],
)
def test_addresses(given: dict[str, Any], email: str | None) -> None:
    assert email_of(given) == email


def test_invisible_names_are_not_shown() -> None:
    assert display_name_of({"name": "Ada L."}, "ada") == "Ada L."
    assert display_name_of({"name": "Ada\u202e"}, "ada") == "ada"


def test_roles_and_groups_of_claims() -> None:
    inside: dict[str, Any] = {"realm_access": {"roles": ["operator", "emperor", 7]}}
    assert roles_of(inside, "realm_access.roles") == ["operator"]
    assert roles_of({"https://x.example/roles": "user"}, "https://x.example/roles") == ["user"]
    assert roles_of({"roles": {"administrator": True}}, "roles") == []
    assert roles_of(inside, "") is None
    assert groups_of({"groups": ["b", "a", "a", "no group", ""]}, "groups") == ["a", "b"]
    assert groups_of({}, "groups") == []
