"""Proxy tokens: a client's address is believed if signed with a known key, for a minute."""

import time
from typing import Any

import jwt
import pytest

from bos_chassis.auth.callers import RunTokenSigner, generate_keypair
from bos_chassis.auth.proxy_tokens import (
    PROXY_TOKEN_KEY,
    ProxyTokenVerifier,
    from_proxy,
    proxy_tokens_from,
)
from bos_chassis.settings import AuthSettings
from bos_errors import ConfigurationError
from bos_testkit.address_tokens import AddressTokens

ADDRESS = "203.0.113.7"


def said(token: str) -> dict[str, str]:
    return {PROXY_TOKEN_KEY: token}


@pytest.mark.parametrize("address", [ADDRESS, "2001:db8::1", ""])
def test_the_address_that_a_known_gateway_signs_is_believed(address: str) -> None:
    rest, second = AddressTokens(), AddressTokens()
    verifier = ProxyTokenVerifier([rest.public_key + second.public_key])
    assert verifier.verify(said(rest.token(address))) == address
    assert verifier.verify(said(second.token(address))) == address


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "bos"},
        {"aud": None},
        {"adr": None},
        {"adr": 7},
        {"adr": "localhost"},
        {"iat": None},
        {"exp": None},
        {"iat": float("nan")},
        {"exp": 10**400},
        {"iat": int(time.time()) + 3600, "exp": int(time.time()) + 3660},
        {"iat": int(time.time()) - 3600, "exp": int(time.time()) - 3540},
        {"exp": int(time.time()) + 3600},
    ],
)
def test_address_tokens_with_wrong_claims_are_ignored(claims: dict[str, Any]) -> None:
    rest = AddressTokens()
    verifier = ProxyTokenVerifier([rest.public_key])
    assert verifier.verify(said(rest.token(ADDRESS))) == ADDRESS
    assert verifier.verify(said(rest.token(ADDRESS, **claims))) is None


def test_forged_address_tokens_are_ignored() -> None:
    rest, attacker = AddressTokens(), AddressTokens()
    verifier = ProxyTokenVerifier([rest.public_key])
    good = rest.token(ADDRESS)
    head, body, signature = good.split(".")
    other = rest.token("198.51.100.1").split(".")[1]
    kid = jwt.get_unverified_header(good)["kid"]
    now = int(time.time())
    no_key: Any = None
    claims = {"iss": "bos-rest", "aud": "bos", "adr": ADDRESS, "iat": now, "exp": now + 60}
    forged = [
        attacker.token(ADDRESS),
        f"{head}.{other}.{signature}",
        f"{head}.{body}.",
        good[:-4],
        "",
        "...",
        "x" * 2000,
        jwt.encode(claims, "secret-of-thirty-two-characters!", "HS256", headers={"kid": kid}),
        jwt.encode(claims, no_key, "none", headers={"kid": kid}),
    ]
    for token in forged:
        assert verifier.verify(said(token)) is None, token
    assert verifier.verify({}) is None
    assert verifier.verify({"x-forwarded-for": ADDRESS}) is None


def test_a_token_that_was_good_ends() -> None:
    rest, now = AddressTokens(), [time.time()]
    verifier = ProxyTokenVerifier([rest.public_key], now=lambda: now[0])
    token = rest.token(ADDRESS)
    assert verifier.verify(said(token)) == ADDRESS
    now[0] += 50
    assert verifier.verify(said(token)) == ADDRESS
    now[0] += 20
    assert verifier.verify(said(token)) is None


def test_what_is_remembered_is_bounded() -> None:
    rest = AddressTokens()
    verifier = ProxyTokenVerifier([rest.public_key])
    first = rest.token("10.0.0.0")
    for number in range(4100):
        verifier._verified[str(number)] = ("", 0.0)
    assert verifier.verify(said(first)) == "10.0.0.0"
    assert len(verifier._verified) == 4096


def test_a_run_token_is_none_of_them() -> None:
    private, public = generate_keypair()
    token = RunTokenSigner(private).mint("ada", "run", "", ["bos"], 60)
    assert ProxyTokenVerifier([public]).verify(said(token)) is None


@pytest.mark.parametrize("keys", ["", "-----BEGIN PUBLIC KEY-----\nAAAA\n"])
def test_keys_that_are_none_are_named(keys: str) -> None:
    with pytest.raises(ConfigurationError, match="BOS_AUTH_PROXY_PUBLIC_KEYS"):
        ProxyTokenVerifier([keys])


def test_settings_say_who_is_a_proxy() -> None:
    rest = AddressTokens()
    assert proxy_tokens_from(AuthSettings.load()) is None
    assert from_proxy(AuthSettings.load()) is None
    settings = AuthSettings.load(proxy_public_keys=rest.public_key)
    believed, verifier = from_proxy(settings), proxy_tokens_from(settings)
    assert believed(said(rest.token(""))) == ""
    assert believed({}) is None
    assert verifier.verify(said(rest.token(ADDRESS))) == ADDRESS
