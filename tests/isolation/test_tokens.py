"""Tokens that must not be accepted, at every public RPC, in every way, with one shape of error."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from isolation_cases import OPEN, RPCS, named, references_of_ada, request, ways, whats_of_ada

from bos.identity.v1 import IdentityServiceStub, LogInRequest, RefreshSessionRequest
from bos_chassis.auth.callers import RunTokenSigner, generate_keypair

if TYPE_CHECKING:
    from collections.abc import Callable

    from isolation_harness import IsolationHarness
    from public_rpcs import PublicRpc

pytestmark = [pytest.mark.isolation, pytest.mark.asyncio(loop_scope="module")]

CLOSED = [rpc for rpc in RPCS if rpc.name not in OPEN]
REFUSED = ("UNAUTHENTICATED", "TOKEN_INVALID")


def encoded(content: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def with_header(token: str, sign: Callable[[bytes], bytes] | None, **header: str) -> str:
    """The token's claims under another header and signature."""
    head = encoded({**jwt.get_unverified_header(token), **header})
    text = f"{head}.{token.split('.')[1]}"
    signature = b"" if sign is None else sign(text.encode())
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def tampered(token: str, **changes: str) -> str:
    head, claims, signature = token.split(".")
    content = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    return f"{head}.{encoded({**content, **changes})}.{signature}"


def forged(harness: IsolationHarness) -> dict[str, str]:
    """Tokens that would be ada's or eve's, if one thing about them were right."""
    good, ada = harness.token(), harness.people["ada"]
    public = harness.private_key.public_key().public_bytes_raw()
    stranger = Ed25519PrivateKey.generate()
    return {
        "expired": harness.token(exp=time.time() - 60),
        "wrong audience": harness.token(aud="sql"),
        "wrong issuer": harness.token(iss="https://evil.example.com"),
        "not valid yet": harness.token(nbf=time.time() + 600),
        "alg none": with_header(good, None, alg="none"),
        "HS256 with the public key": with_header(
            good, lambda text: hmac.new(public, text, hashlib.sha256).digest(), alg="HS256"
        ),
        "unknown key": with_header(good, stranger.sign, kid="0123456789abcdef"),
        "another key under a known id": with_header(good, stranger.sign),
        "tampered": tampered(good, sub=ada.user_id, sid=ada.session_id),
        "a refresh token": harness.people["eve"].refresh_token,
        "a run token": RunTokenSigner(generate_keypair()[0]).mint(
            ada.user_id, "r", "s", ["bos", "gateway"], 60
        ),
        "no token at all": "nonsense",
    }


def filled(rpc: PublicRpc, harness: IsolationHarness) -> Any:
    """A request that would be answered if its token were ada's."""
    return request(rpc, **{f: whats_of_ada(harness, f)[0] for f in references_of_ada(rpc)})


async def test_a_token_made_the_same_way_is_accepted(harness: IsolationHarness) -> None:
    """So what is refused below is refused for the one thing that is wrong with it."""
    (rpc,) = [rpc for rpc in RPCS if rpc.name == "OrchestratorService.ListRuns"]
    answers = await ways(harness, rpc, rpc.message(), harness.token())
    assert {answer.code for answer in answers.values()} == {"OK"}


@named(CLOSED)
async def test_no_forged_token_opens_anything(rpc: PublicRpc, harness: IsolationHarness) -> None:
    shapes: dict[tuple[str, str, str], list[str]] = {}
    for case, token in forged(harness).items():
        for way, answer in (await ways(harness, rpc, filled(rpc, harness), token)).items():
            shapes.setdefault(answer.shape, []).append(f"{case}, {way}")
    assert len(shapes) == 1, shapes
    assert next(iter(shapes))[:2] == REFUSED


def run_tokens(harness: IsolationHarness) -> dict[str, str]:
    """Tokens that the gateway might have signed for a run of ada's, as others hold them."""
    ada, run = harness.people["ada"].user_id, harness.runs["under way"]
    everybody, mint = ["echo", "bos", "gateway", "identity", "memory"], harness.run_tokens.mint
    own = {f"a call of {name}": mint(ada, run, "", [name], 60) for name in everybody}
    return {
        **own,
        "a step": mint(ada, run, f"{run}/0/a", everybody, 60),
        "reading ahead": mint(ada, run, "", everybody, 60, use="step"),
    }


@named(CLOSED)
async def test_no_run_token_opens_what_is_for_people(
    rpc: PublicRpc, harness: IsolationHarness
) -> None:
    for case, token in run_tokens(harness).items():
        message = filled(rpc, harness)
        answer = await harness.grpc(rpc, message, None, run_token=token)
        assert answer.code in ("UNAUTHENTICATED", "PERMISSION_DENIED"), case
        for way, other in (await ways(harness, rpc, message, token)).items():
            assert other.shape[:2] == REFUSED, f"{case}, {way}"


@named(CLOSED)
async def test_without_a_token_nothing_opens(rpc: PublicRpc, harness: IsolationHarness) -> None:
    answers = await ways(harness, rpc, filled(rpc, harness), None)
    assert {answer.shape[:2] for answer in answers.values()} == {
        ("UNAUTHENTICATED", "CREDENTIAL_MISSING")
    }


async def test_a_replayed_refresh_token_is_refused_in_the_same_shape(
    harness: IsolationHarness,
) -> None:
    (rpc,) = [rpc for rpc in RPCS if rpc.name == "IdentityService.RefreshSession"]
    stub = IdentityServiceStub(harness.channels["bos.identity.v1"])
    login = await stub.LogIn(LogInRequest(username="eve", password="correct horse battery"))
    used = login.tokens.refresh_token
    newest = (await stub.RefreshSession(RefreshSessionRequest(refresh_token=used))).tokens
    # Its answer has arrived, as what was issued is used.
    request = RefreshSessionRequest(refresh_token=newest.refresh_token)
    newest = (await stub.RefreshSession(request)).tokens
    message = rpc.message(refresh_token=used)
    answers = list((await ways(harness, rpc, message, None)).values())
    # The replay ended the session, so its newest tokens are worth nothing either.
    answers.append(await harness.grpc(rpc, rpc.message(refresh_token=newest.refresh_token), None))
    (me,) = [rpc for rpc in RPCS if rpc.name == "IdentityService.GetUser"]
    answers += (await ways(harness, me, me.message(), newest.access_token)).values()
    answers += (await ways(harness, me, me.message(), "nonsense")).values()
    assert len({answer.shape for answer in answers}) == 1
    assert answers[0].shape[:2] == REFUSED
