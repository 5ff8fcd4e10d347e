"""Access tokens over a real server: what is accepted, and that every refusal looks the same."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bos.identity.v1 import (
    GetJsonWebKeySetResponse,
    IdentityServiceServicer,
    JsonWebKey,
    add_IdentityServiceServicer_to_server,
)
from bos_chassis.auth import RunTokenSigner, current_principal, generate_keypair
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.errors import ConfigurationError, Unauthenticated, Unavailable
from bos_chassis.jwks import KeySet, verifying_keys
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.user_tokens import open_authenticator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

ISSUER = "https://login.example.com"
STATIC_KEY = "0123456789abcdef"
PRIVATE, PUBLIC = generate_keypair()


class Issuer:
    """Signs tokens with a key of a kind, and publishes that key."""

    def __init__(self, algorithm: str = "EdDSA", key_id: str = "k1") -> None:
        makers = {
            "EdDSA": Ed25519PrivateKey.generate,
            "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
            "RS256": lambda: rsa.generate_private_key(65537, 2048),
        }
        self.algorithm, self.key_id = algorithm, key_id
        self.key: Any = makers[algorithm]()

    @property
    def jwk(self) -> dict[str, Any]:
        algorithm = jwt.get_algorithm_by_name(self.algorithm)
        text = algorithm.to_jwk(self.key.public_key())
        return {**json.loads(text), "kid": self.key_id, "use": "sig", "alg": self.algorithm}

    def token(self, *, header: dict[str, Any] | None = None, **changes: Any) -> str:
        now = time.time()
        claims = {"iss": ISSUER, "sub": "u1", "aud": "bos", "iat": int(now), "exp": now + 60}
        claims = {k: v for k, v in {**claims, **changes}.items() if v is not None}
        headers = {"kid": self.key_id, **(header or {})}
        return jwt.encode(claims, self.key, algorithm=self.algorithm, headers=headers)


def key_file(folder: Path, *keys: dict[str, Any]) -> Path:
    path = folder / "jwks.json"
    path.write_text(json.dumps({"keys": list(keys)}))
    return path


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
    content["sub"] = "somebody-else"
    forged = base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
    return f"{head}.{forged}.{signature}"


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[tuple[Any, Telemetry]]:
    telemetry = Telemetry.for_tests("echo")
    async with open_authenticator(
        AuthSettings.load(**{"issuer": ISSUER, **settings}), "echo", telemetry
    ) as authenticator:
        yield authenticator, telemetry


async def accepts(authenticator: Any, token: str) -> Any:
    return await authenticator.authenticate({"authorization": f"Bearer {token}"})


@pytest.mark.parametrize("algorithm", ["EdDSA", "ES256", "RS256"])
async def test_a_token_of_the_issuer_names_its_user(algorithm: str, tmp_path: Path) -> None:
    issuer = Issuer(algorithm)
    async with opened(jwks_file=key_file(tmp_path, issuer.jwk)) as (authenticator, _):
        principal = await accepts(authenticator, issuer.token(sid="s1"))
        again = await accepts(authenticator, issuer.token(aud=["other", "bos"]))
    assert (principal.user_id, principal.session_id, principal.kind) == ("u1", "s1", "user_token")
    assert again.user_id == "u1"


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


@pytest.mark.parametrize("token_type", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", None])
async def test_issuers_name_the_type_of_access_tokens_or_leave_it_out(
    token_type: str | None, tmp_path: Path
) -> None:
    issuer = Issuer()
    token = issuer.token(header={"typ": token_type})
    async with opened(jwks_file=key_file(tmp_path, issuer.jwk)) as (authenticator, _):
        assert (await accepts(authenticator, token)).user_id == "u1"


async def test_a_token_that_says_it_is_an_access_token_may_carry_a_nonce(tmp_path: Path) -> None:
    issuer = Issuer()
    token = issuer.token(header={"typ": "at+jwt"}, nonce="n")
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


async def test_clocks_may_differ_by_the_leeway_and_no_more(tmp_path: Path) -> None:
    issuer = Issuer()
    file = key_file(tmp_path, issuer.jwk)
    async with opened(jwks_file=file, leeway_s=120) as (authenticator, _):
        assert await accepts(authenticator, issuer.token(exp=time.time() - 60))
        with pytest.raises(Unauthenticated):
            await accepts(authenticator, issuer.token(exp=time.time() - 180))


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
    "claim",
    [
        *("finance", 7, {"finance": 1}, [7], [""], [["finance"]], ["a\n"], [" a"]),
        ["a" * 65],
        ["\u202efinance"],
        [f"group{number}" for number in range(65)],
    ],
)
@pytest.mark.parametrize("name", ["roles", "groups"])
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


async def test_static_key_and_run_tokens_are_accepted_beside_access_tokens(tmp_path: Path) -> None:
    issuer = Issuer()
    async with opened(
        jwks_file=key_file(tmp_path, issuer.jwk),
        static_key=STATIC_KEY,
        static_key_user="u0",
        run_token_public_keys=PUBLIC,
    ) as (authenticator, _):
        assert (await accepts(authenticator, STATIC_KEY)).user_id == "u0"
        assert (await accepts(authenticator, issuer.token())).user_id == "u1"
        run_token = RunTokenSigner(PRIVATE).mint("u2", "r", "", ["echo"], 60)
        assert (await authenticator.authenticate({"bos-run-token": run_token})).user_id == "u2"
        assert await authenticator.authenticate({}) is None
        with pytest.raises(Unauthenticated, match="not valid"):
            await accepts(authenticator, STATIC_KEY + "x")


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
        {**Issuer().jwk, "kid": "k2", "kty": {}},
        {**Issuer().jwk, "kid": "k2", "x": 7},
        {**Issuer("RS256").jwk, "kid": "k2", "n": None},
        {**Issuer("ES256").jwk, "kid": "k2", "y": []},
        "no key at all",
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
    """A source of keys that counts, and fails when told to."""

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
async def test_a_new_key_is_an_outage_and_no_refusal_while_its_issuer_is_away(
    pause_s: float,
) -> None:
    source = Keys(Issuer().jwk)
    async with key_set(source, max_age_s=1e-9, pause_s=0.0) as keys:
        assert await keys.find("k2") is None  # the issuer answers, and has none
        source.failing = True
        for _ in range(2):
            with pytest.raises(Unavailable) as away:
                await keys.find("k2")
            assert away.value.reason == "KEYS_UNAVAILABLE"
            keys._pause_s = pause_s  # the second time nobody is asked, perhaps
        source.failing = False
        keys._pause_s = 0.0
        assert await keys.find("k2") is None
    assert source.fetched == (4 if pause_s == 0.0 else 3)


async def test_an_issuer_that_never_answered_is_an_outage_and_no_refusal(tmp_path: Path) -> None:
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


@asynccontextmanager
async def openid_issuer(signer: Issuer, **document: str) -> AsyncIterator[str]:
    """An OpenID issuer on a real port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        content: dict[str, Any] = {"keys": [signer.jwk]}
        if b"openid-configuration" in head:
            content = {"issuer": url, "jwks_uri": f"{url}/keys", **document}
        body = json.dumps(content).encode()
        start = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        writer.write(f"{start}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield url


async def test_an_openid_issuer_needs_its_url_alone() -> None:
    issuer = Issuer("RS256")
    async with (
        openid_issuer(issuer) as url,
        opened(issuer=url) as (authenticator, _),
    ):
        assert (await accepts(authenticator, issuer.token(iss=url))).user_id == "u1"


async def test_the_configuration_of_another_issuer_is_not_believed() -> None:
    issuer = Issuer("RS256")
    async with (
        openid_issuer(issuer, issuer="https://evil.example.com") as url,
        opened(issuer=url) as (authenticator, _),
    ):
        with pytest.raises(Unavailable):
            await accepts(authenticator, issuer.token(iss=url))


async def test_keys_can_be_at_a_url_of_their_own() -> None:
    issuer = Issuer()
    async with (
        openid_issuer(issuer) as url,
        opened(jwks_url=f"{url}/keys") as (authenticator, _),
    ):
        assert (await accepts(authenticator, issuer.token())).user_id == "u1"


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"issuer": None, "identity_target": "127.0.0.1:1"}, "BOS_AUTH_ISSUER"),
        ({"issuer": "bos-identity"}, "BOS_AUTH_IDENTITY_TARGET"),
    ],
)
async def test_settings_that_cannot_work_name_the_fix(settings: Any, names: str) -> None:
    with pytest.raises(ConfigurationError, match=names):
        async with opened(**settings):
            pass


async def test_open_methods_ask_nobody_and_all_others_do(
    servicer_of: Any, stub_of: Any, echo: Any, tmp_path: Path
) -> None:
    async def who(request: Any, context: Any) -> Any:
        principal = current_principal()
        return echo(text=principal.user_id if principal else "nobody")

    issuer = Issuer()
    made = servicer_of(get=who, put=who)
    servicer = Servicer(made.servicer, made.add, made.name, open_methods=("Get",))
    async with AsyncExitStack() as stack:
        authenticator, telemetry = await stack.enter_async_context(
            opened(jwks_file=key_file(tmp_path, issuer.jwk))
        )
        server = await stack.enter_async_context(
            grpc_server(
                ServerSettings(grace_s=0), [servicer], telemetry=telemetry, auth=authenticator
            )
        )
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
        stub = stub_of(channel)

        def bearer(token: str) -> dict[str, Any]:
            return {"metadata": (("authorization", f"Bearer {token}"),)}

        # What it brings is not looked at: an expired token must not keep anybody from a new one.
        assert (await stub.get(echo(), **bearer("rubbish"))).text == "nobody"
        assert (await stub.put(echo(), **bearer(issuer.token()))).text == "u1"
        with pytest.raises(Unauthenticated), translate_rpc_errors():
            await stub.put(echo(), **bearer("rubbish"))
        with pytest.raises(Unauthenticated) as missing, translate_rpc_errors():
            await stub.put(echo())
        assert missing.value.reason == "CREDENTIAL_MISSING"
