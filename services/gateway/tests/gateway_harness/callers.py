"""Callers with access tokens of an issuer of the tests' own."""

import json
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bos_chassis.settings import AuthSettings

KEY = Ed25519PrivateKey.generate()
ISSUER = "https://login.example.com"


def bearer(access_token: str) -> Any:
    """Metadata of a call with this token."""
    return (("authorization", f"Bearer {access_token}"),)


def token(user: str, *groups: str, roles: tuple[str, ...] | None = None) -> Any:
    """Metadata of a call of this user; without ``roles`` its token says nothing of them."""
    claims = {"iss": ISSUER, "aud": "bos", "sub": user, "iat": 0, "exp": 2**40}
    claims |= {"groups": groups} if groups else {}
    claims |= {} if roles is None else {"roles": roles}
    signed = jwt.encode(claims, KEY, algorithm="EdDSA", headers={"kid": "k1"})
    return bearer(signed)


def signed_in(folder: Path) -> AuthSettings:
    """Settings under which such tokens are taken."""
    jwk = json.loads(jwt.get_algorithm_by_name("EdDSA").to_jwk(KEY.public_key()))
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [{**jwk, "kid": "k1", "alg": "EdDSA"}]}))
    return AuthSettings.load(issuer=ISSUER, jwks_file=keys)
