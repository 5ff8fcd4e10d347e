"""Access tokens over a real server: what is accepted, and that every refusal looks the same."""

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from token_issuer import ISSUER, Issuer, accepts, key_file, opened

from bos_chassis.auth.callers import RunTokenSigner, current_principal, generate_keypair
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.settings import AuthSettings
from bos_errors import ConfigurationError, Unauthenticated

STATIC_KEY = "0123456789abcdef"
PRIVATE = generate_keypair()[0]


def unsigned(token: str, algorithm: str, secret: bytes = b"") -> str:
    """The token's claims under another algorithm: none, or an HMAC with ``secret``."""
    header = {"alg": algorithm, "typ": "JWT", "kid": "k1"}
    head = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
    text = f"{head}.{token.split('.')[1]}"
    if algorithm == "none":
        return f"{text}."
    mac = hmac.new(secret, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def tampered(token: str) -> str:
    """Another user in the claims, under the signature of the original."""
    head, claims, signature = token.split(".")
    content = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    content["sub"] = "another-user"
    forged = base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
    return f"{head}.{forged}.{signature}"


@pytest.mark.parametrize("algorithm", ["EdDSA", "ES256", "RS256"])
async def test_a_token_of_the_issuer_names_its_user(algorithm: str, tmp_path: Path) -> None:
    issuer = Issuer(algorithm)
    async with opened(jwks_file=key_file(tmp_path, issuer.jwk)) as (authenticator, _):
        principal = await accepts(authenticator, issuer.token(sid="s1"))
        again = await accepts(authenticator, issuer.token(aud=["other", "bos"]))
    assert (principal.user_id, principal.session_id, principal.kind) == ("u1", "s1", "user_token")
    assert again.user_id == "u1"


async def test_a_key_is_good_for_its_own_algorithm_alone(tmp_path: Path) -> None:
    """As the key says, regardless of what the token names: RSA keys could verify by nine."""
    issuer = Issuer("RS256")
    async with opened(jwks_file=key_file(tmp_path, issuer.jwk)) as (authenticator, _):
        await accepts(authenticator, issuer.token())
        for issuer.algorithm in ("RS384", "RS512", "PS256"):
            with pytest.raises(Unauthenticated):
                await accepts(authenticator, issuer.token())


def refused_tokens(issuer: Issuer) -> dict[str, str]:
    """One token for every reason to refuse one."""
    now = time.time()
    good = issuer.token()
    public = issuer.key.public_key().public_bytes_raw()
    signer = RunTokenSigner(PRIVATE)
    return {
        "expired": issuer.token(exp=now - 60),
        "not yet valid": issuer.token(nbf=now + 600),
        "issued in the future": issuer.token(iat=now + 600),
        "wrong audience": issuer.token(aud="other"),
        "wrong issuer": issuer.token(iss="https://evil.example.com"),
        "no expiry": issuer.token(exp=None),
        "no audience": issuer.token(aud=None),
        "no user": issuer.token(sub=None),
        "reserved user": issuer.token(sub="local"),
        "user with control characters": issuer.token(sub="u1\n"),
        "alg none": unsigned(good, "none"),
        "HS256 with the public key": unsigned(good, "HS256", public),
        "unknown key": Issuer(key_id="k9").token(),
        "forged under a known key id": Issuer(key_id="k1").token(),
        "another algorithm than the key's": Issuer("ES256", "k1").token(),
        "tampered": tampered(good),
        "signature removed": good.rpartition(".")[0] + ".",
        "no key id": jwt.encode({"sub": "u1"}, issuer.key, algorithm="EdDSA"),
        "an ID token by its nonce": issuer.token(nonce="n"),
        "an ID token by its hash": issuer.token(at_hash="h"),
        "an ID token by its use": issuer.token(token_use="id"),
        "an ID token without a type": issuer.token(header={"typ": None}, nonce="n"),
        "a logout token": issuer.token(header={"typ": "logout+jwt"}),
        "a type that is no text": issuer.token(header={"typ": ["at+jwt"]}),
        "a run token": signer.mint("u1", "r", "s", ["bos"], 60),
        "nested without end": base64.urlsafe_b64encode(b"[" * 5000).decode() + ".e30.",
        "too long": good + "a" * 9000,
        "no token at all": "not-a-token",
        "empty": "",
    }


REASONS = sorted(refused_tokens(Issuer()))


@pytest.mark.parametrize("case", REASONS)
async def test_every_refusal_looks_the_same(case: str, tmp_path: Path) -> None:
    issuer = Issuer()
    async with opened(jwks_file=key_file(tmp_path, issuer.jwk)) as (authenticator, telemetry):
        with pytest.raises(Unauthenticated) as refused:
            await accepts(authenticator, refused_tokens(issuer)[case])
    shape = (refused.value.reason, refused.value.message, refused.value.metadata)
    assert shape == ("TOKEN_INVALID", "The token is not valid, or no longer. Sign in again.", {})
    assert [entry for entry in telemetry.logs if entry["event"] == "token refused"]


async def test_of_refused_tokens_there_are_samples_in_the_log(tmp_path: Path) -> None:
    signer = Issuer()
    async with opened(jwks_file=key_file(tmp_path, signer.jwk)) as (authenticator, telemetry):
        for _ in range(200):
            with pytest.raises(Unauthenticated):
                await accepts(authenticator, "e30.e30.e30")
    lines = [entry for entry in telemetry.logs if entry["event"] == "token refused"]
    assert 0 < len(lines) <= 40, "20 in an interval, of which there may be two"


@pytest.mark.parametrize(
    ("token_type", "more"),
    [("AT+JWT", {}), ("application/at+jwt", {}), (None, {}), ("at+jwt", {"nonce": "n"})],
)
async def test_issuers_name_the_type_of_access_tokens_or_leave_it_out(
    token_type: str | None, more: dict[str, str], tmp_path: Path
) -> None:
    issuer = Issuer()
    token = issuer.token(header={"typ": token_type}, **more)
    async with opened(jwks_file=key_file(tmp_path, issuer.jwk)) as (authenticator, _):
        assert (await accepts(authenticator, token)).user_id == "u1"


async def test_the_type_can_be_demanded_of_any_issuer(tmp_path: Path) -> None:
    issuer = Issuer()
    file = key_file(tmp_path, issuer.jwk)
    async with opened(jwks_file=file, require_token_type=True) as (authenticator, _):
        assert await accepts(authenticator, issuer.token(header={"typ": "at+jwt"}))
        for token_type in ("JWT", None):
            with pytest.raises(Unauthenticated):
                await accepts(authenticator, issuer.token(header={"typ": token_type}))


@pytest.mark.parametrize(
    ("settings", "seconds", "taken"),
    [
        ({}, {"iat": 5}, True),
        ({}, {"iat": 6}, False),
        ({}, {"nbf": 5}, True),
        ({}, {"nbf": 6}, False),
        ({}, {"exp": -4}, True),
        ({}, {"exp": -5}, False),
        ({"leeway_s": 120}, {"exp": -119}, True),
        ({"leeway_s": 120}, {"exp": -120}, False),
    ],
)
async def test_an_issuers_clock_may_differ_by_five_seconds_or_the_leeway(
    settings: Any, seconds: dict[str, int], taken: bool, tmp_path: Path, stopped_clock: int
) -> None:
    issuer = Issuer()
    times = {"iat": stopped_clock, "exp": stopped_clock + 600}
    times |= {name: stopped_clock + each for name, each in seconds.items()}
    token = issuer.token(**times)
    file = key_file(tmp_path, issuer.jwk)
    async with opened(jwks_file=file, **settings) as (authenticator, _):
        if taken:
            assert await accepts(authenticator, token)
            return
        with pytest.raises(Unauthenticated):
            await accepts(authenticator, token)


def test_the_leeway_of_clocks_has_a_bound() -> None:
    assert AuthSettings.load(leeway_s=300).leeway_s == 300
    for leeway_s in (301, -1):
        with pytest.raises(ConfigurationError, match="LEEWAY_S"):
            AuthSettings.load(leeway_s=leeway_s)


async def test_another_claim_can_hold_the_user(tmp_path: Path) -> None:
    issuer = Issuer()
    file = key_file(tmp_path, issuer.jwk)
    async with opened(jwks_file=file, user_claim="email") as (authenticator, _):
        principal = await accepts(authenticator, issuer.token(email="a@example.com"))
        assert principal.user_id == "a@example.com"
        with pytest.raises(Unauthenticated):
            await accepts(authenticator, issuer.token())


async def test_roles_and_groups_come_from_the_token_and_its_settings(tmp_path: Path) -> None:
    issuer = Issuer()
    settings = {"issuer": ISSUER, "jwks_file": key_file(tmp_path, issuer.jwk)}
    async with opened(**settings) as (authenticator, _):
        bare = await accepts(authenticator, issuer.token())
        assert (bare.roles, bare.groups) == ({"user"}, frozenset())
        full = issuer.token(roles=["approver", "offline_access"], groups=["finance", "hr"])
        found = await accepts(authenticator, full)
        assert (found.roles, found.groups) == ({"approver"}, {"finance", "hr"})
        assert (await accepts(authenticator, issuer.token(roles=[]))).roles == frozenset()
    elsewhere = {"roles_claim": "realm", "groups_claim": "teams", "default_roles": ("operator",)}
    async with opened(**settings, **elsewhere) as (authenticator, _):
        other = await accepts(authenticator, issuer.token(roles=["approver"], teams=["hr"]))
        assert (other.roles, other.groups) == ({"operator"}, {"hr"})


@pytest.mark.parametrize(
    ("name", "claim"),
    [
        ("roles", "finance"),
        ("roles", ["a\n"]),
        *(
            ("groups", claim)
            for claim in ("finance", {"finance": 1}, [7], [""], [" a"], ["a" * 65])
        ),
        ("groups", ["\u202efinance"]),
        ("groups", [f"group{number}" for number in range(65)]),
    ],
)
async def test_odd_roles_and_groups_make_a_token_invalid(
    name: str, claim: Any, tmp_path: Path
) -> None:
    issuer = Issuer()
    settings = {"issuer": ISSUER, "jwks_file": key_file(tmp_path, issuer.jwk)}
    async with opened(**settings) as (authenticator, _):
        with pytest.raises(Unauthenticated):
            await accepts(authenticator, issuer.token(**{name: claim}))
        most = [f"group{number:059}" for number in range(64)]
        assert len((await accepts(authenticator, issuer.token(groups=most))).groups) == 64


async def test_the_static_key_has_the_roles_and_groups_of_its_settings() -> None:
    async with opened(issuer=None, static_key=STATIC_KEY) as (authenticator, _):
        plain = await accepts(authenticator, STATIC_KEY)
        assert (plain.roles, plain.groups) == ({"user"}, frozenset())
    given = {"static_key_roles": ("operator",), "static_key_groups": ("hr",)}
    async with opened(issuer=None, static_key=STATIC_KEY, **given) as (authenticator, _):
        found = await accepts(authenticator, STATIC_KEY)
        assert (found.roles, found.groups) == ({"operator"}, {"hr"})
    with pytest.raises(ConfigurationError, match="BOS_AUTH_STATIC_KEY_ROLES"):
        AuthSettings.load(static_key_roles=("root",))


async def test_open_methods_need_no_authentication_and_all_others_do(
    start: Any, echo: Any, tmp_path: Path
) -> None:
    async def who(request: Any, context: Any) -> Any:
        principal = current_principal()
        return echo(text=principal.user_id if principal else "anonymous")

    issuer = Issuer()
    file = key_file(tmp_path, issuer.jwk)
    async with opened(jwks_file=file) as (authenticator, _):
        offered = {"open_methods": ("Get",)}
        stub = (await start(auth=authenticator, offered=offered, get=who, put=who)).stub

        def bearer(token: str) -> dict[str, Any]:
            return {"metadata": (("authorization", f"Bearer {token}"),)}

        # What it brings is not looked at: an expired token must not keep a user from a new one.
        assert (await stub.get(echo(), **bearer("rubbish"))).text == "anonymous"
        assert (await stub.put(echo(), **bearer(issuer.token()))).text == "u1"
        with pytest.raises(Unauthenticated), translate_rpc_errors():
            await stub.put(echo(), **bearer("rubbish"))
        with pytest.raises(Unauthenticated) as missing, translate_rpc_errors():
            await stub.put(echo())
        assert missing.value.reason == "CREDENTIAL_MISSING"
