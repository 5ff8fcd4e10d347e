"""Each kind of wrong credential, at an RPC of each server, in every way: over gRPC and REST.

The rows of ``test_cells`` show that each RPC asks for a credential; here it is shown which ones the
authenticators refuse, with one shape of error, so that it says nothing of what was wrong.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.message import Message

from bos_chassis.auth.callers import RUN_TOKEN_KEY, RunTokenSigner, generate_keypair
from bos_chassis.auth.scopes import SCOPE_OF

from .cell_calls import Heard, Metadata, bearer, call_grpc
from .cell_calls import ways as ways_of
from .cell_harness import CellHarness
from .cell_kinds import REVOKED_KEY
from .cell_rows import ROWS
from .isolation_harness import SECRET
from .public_rpcs import PublicRpc, public_rpcs

pytestmark = [
    pytest.mark.isolation,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(900),
]

RPCS = {rpc.name: rpc for rpc in public_rpcs()}
AT_EACH_SERVER = (
    "OrchestratorService.GetRun",
    "IdentityService.RevokeSession",
    "MemoryService.GetConversation",
    "DocumentsService.GetDocument",
    "FileService.GetFile",
)
"""One for each authenticator; each names something of ada's."""
CHANGES = ("OrchestratorService.CancelRun", "WebhookService.DeleteWebhook")
QUIET = (
    "OrchestratorService.ListRuns",
    "OrchestratorService.ListAgents",
    "ApprovalService.ListApprovals",
    "WebhookService.ListWebhooks",
    "DocumentsService.ListDocuments",
    "FileService.ListFiles",
    "MemoryService.ListConversations",
    "IdentityService.GetUser",
)
"""Calls that change nothing and name nothing: one for each scope."""
REFUSED = ("UNAUTHENTICATED", "TOKEN_INVALID")
GROUPS: dict[str, dict[str, Any]] = {
    "group of hers": {"roles": ["user"], "groups": ["crew"]},
    "administrator": {"roles": ["user", "administrator"], "groups": []},
    "group called like a role": {"roles": ["user"], "groups": ["approver", "role:approver"]},
}
"""What eve's tokens say of her, beside the callers of the rows; none of it gives access."""
APPROVERS: dict[str, dict[str, Any]] = {
    "approver": {"roles": ["user", "approver"], "groups": []},
    "finance": {"roles": ["user"], "groups": ["finance"]},
}
"""Who may see what ada is asked, and no more of hers than that."""


async def ways(
    harness: CellHarness, rpc: PublicRpc, message: Message, metadata: Metadata
) -> Mapping[str, Heard]:
    channel = harness.services.channels[rpc.service.rpartition(".")[0]]
    return await ways_of(harness.services, channel, rpc, message, metadata)


def request(harness: CellHarness, rpc: PublicRpc, *, missing: bool = False) -> Message:
    """What the row asks for of ada's, or the same of ids that do not exist."""
    asked: Any = ROWS[rpc.path.removeprefix("/")].request(harness)
    if missing:
        asked = {name: str(uuid4()) for name in asked}
    return rpc.message(**asked)


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


def forged(harness: CellHarness) -> dict[str, str]:
    """Tokens that would be ada's or eve's, if one thing about them were right."""
    services, ada = harness.services, harness.people["ada"]
    good = services.token()
    public = services.private_key.public_key().public_bytes_raw()
    another = Ed25519PrivateKey.generate()
    return {
        "expired": services.token(exp=time.time() - 60),
        "wrong audience": services.token(aud="sql"),
        "wrong issuer": services.token(iss="https://evil.example.com"),
        "not valid yet": services.token(nbf=time.time() + 600),
        "alg none": with_header(good, None, alg="none"),
        "HS256 with the public key": with_header(
            good, lambda text: hmac.new(public, text, hashlib.sha256).digest(), alg="HS256"
        ),
        "unknown key": with_header(good, another.sign, kid="0123456789abcdef"),
        "another key under a known id": with_header(good, another.sign),
        "tampered": tampered(good, sub=ada.user_id, sid=ada.session_id),
        "a refresh token": harness.people["eve"].refresh_token,
        "a run token": RunTokenSigner(generate_keypair()[0]).mint(
            ada.user_id, "r", "s", ["bos", "gateway"], 60
        ),
        "no token at all": "nonsense",
    }


async def test_forged_tokens_are_refused_alike(harness: CellHarness) -> None:
    ada = harness.people["ada"]
    shapes: dict[tuple[str, str, str], list[str]] = {}
    for name in AT_EACH_SERVER:
        message = request(harness, RPCS[name])
        for case, token in forged(harness).items():
            for way, heard in (await ways(harness, RPCS[name], message, bearer(token))).items():
                shapes.setdefault(heard.shape, []).append(f"{name}, {case}, {way}")
        # One made the same way is good: what is refused above is refused for what is wrong with it.
        own = services_token(harness, sub=ada.user_id, sid=ada.session_id)
        if RPCS[name].reads:
            heard_all = await ways(harness, RPCS[name], message, own)
            assert {heard.code for heard in heard_all.values()} == {"OK"}, name
    assert [shape[:2] for shape in shapes] == [REFUSED], shapes


def services_token(harness: CellHarness, **claims: Any) -> Metadata:
    return bearer(harness.services.token(**claims))


def run_tokens(harness: CellHarness) -> dict[str, str]:
    """Tokens that the gateway might have signed for a run of ada's, as others hold them."""
    ada, run = harness.people["ada"].user_id, harness.services.runs["under way"]
    audiences, mint = ["echo", "bos", "gateway", "identity", "memory"], harness.services.run_tokens
    own = {f"a call of {name}": mint.mint(ada, run, "", [name], 60) for name in audiences}
    return {
        **own,
        "a step": mint.mint(ada, run, f"{run}/0/a", audiences, 60),
        "prefetch": mint.mint(ada, run, "", audiences, 60, use="step"),
    }


async def test_run_tokens_are_no_access_tokens(harness: CellHarness) -> None:
    wrong = []
    for name in AT_EACH_SERVER:
        message = request(harness, RPCS[name])
        for case, token in run_tokens(harness).items():
            channel = harness.services.channels[RPCS[name].service.rpartition(".")[0]]
            heard = await call_grpc(channel, RPCS[name], message, ((RUN_TOKEN_KEY, token),))
            if heard.code not in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
                wrong.append((name, case, heard.outcome))
            for way, other in (await ways(harness, RPCS[name], message, bearer(token))).items():
                if other.outcome != REFUSED:
                    wrong.append((name, case, way, other.outcome))
    assert not wrong


async def test_made_up_keys_are_refused_as_revoked_ones(harness: CellHarness) -> None:
    shapes = set()
    for name in AT_EACH_SERVER:
        message = request(harness, RPCS[name])
        made_up = (bearer(f"bosk_{uuid4().hex}_{'x' * 43}"), bearer("bosk_"))
        for key in (harness.credentials[REVOKED_KEY], *made_up):
            found = await ways(harness, RPCS[name], message, key)
            shapes |= {heard.shape for heard in found.values()}
    assert [shape[:2] for shape in shapes] == [("UNAUTHENTICATED", "API_KEY_INVALID")]


async def test_keys_with_the_scope_are_answered(harness: CellHarness) -> None:
    for name in QUIET:
        rpc = RPCS[name]
        scope = SCOPE_OF[rpc.path.removeprefix("/")]
        _, key = await harness.services.api_key("eve", [scope])
        for way, heard in (await ways(harness, rpc, rpc.message(), bearer(key))).items():
            assert heard.code == "OK", (name, way, heard)


async def test_groups_and_roles_open_nothing_of_others(harness: CellHarness) -> None:
    wrong = []
    for name in (*AT_EACH_SERVER, *CHANGES):
        rpc = RPCS[name]
        for kind, claims in {**GROUPS, **APPROVERS}.items():
            token = services_token(harness, **claims)
            there = await ways(harness, rpc, request(harness, rpc), token)
            missing = await ways(harness, rpc, request(harness, rpc, missing=True), token)
            wrong += [
                (name, kind, way, heard.outcome)
                for way, heard in there.items()
                if heard.shape != missing[way].shape or heard.code != "NOT_FOUND"
            ]
    assert not wrong


async def test_approvers_see_the_request_alone(harness: CellHarness) -> None:
    get, listed = RPCS["ApprovalService.GetApproval"], RPCS["ApprovalService.ListApprovals"]
    asked, approval_id = request(harness, get), harness.things["approval"]
    runs = RPCS["OrchestratorService.ListRuns"]
    for kind, claims in {**GROUPS, **APPROVERS}.items():
        token, may = services_token(harness, **claims), kind in APPROVERS
        missing = await ways(harness, get, request(harness, get, missing=True), token)
        for way, heard in (await ways(harness, get, asked, token)).items():
            assert (heard.code, SECRET in heard.text) == (
                ("OK", True) if may else ("NOT_FOUND", False)
            ), (kind, way)
            assert may or heard.shape == missing[way].shape, (kind, way)
        for way, heard in (await ways(harness, listed, listed.message(), token)).items():
            assert (heard.code, approval_id in heard.text) == ("OK", may), (kind, way)
        for way, heard in (await ways(harness, runs, runs.message(), token)).items():
            assert (heard.code, SECRET in heard.text) == ("OK", False), (kind, way)


async def test_agents_of_another_group_are_not_listed(harness: CellHarness) -> None:
    agents = RPCS["OrchestratorService.ListAgents"]
    for groups, seen in ((["crew"], True), (["hr"], False), ([], False)):
        token = services_token(harness, roles=["user"], groups=groups)
        for way, heard in (await ways(harness, agents, agents.message(), token)).items():
            assert (heard.code, "deploy" in heard.text) == ("OK", seen), (groups, way)


async def test_request_ids_of_two_users_are_two_runs(harness: CellHarness) -> None:
    services = harness.services
    run_id, call = await services.ask("eve", "What about me?", "request-2")
    call.cancel()
    assert run_id not in services.runs.values()


async def test_replayed_refresh_token_ends_its_session(harness: CellHarness) -> None:
    rpc, me = RPCS["IdentityService.RefreshSession"], RPCS["IdentityService.GetUser"]
    used = (await harness.services.log_in("eve")).refresh_token
    newest = await harness.services.call("", rpc.name, refresh_token=used)
    # Its answer has arrived, as what was issued is used.
    newest = await harness.services.call("", rpc.name, refresh_token=newest.tokens.refresh_token)
    newest = newest.tokens
    answers = [*(await ways(harness, rpc, rpc.message(refresh_token=used), ())).values()]
    # The replay ended the session, so its newest tokens are refused as well.
    last = rpc.message(refresh_token=newest.refresh_token)
    answers += (await ways(harness, rpc, last, ())).values()
    for token in (newest.access_token, "nonsense"):
        answers += (await ways(harness, me, me.message(), bearer(token))).values()
    assert {heard.shape[:2] for heard in answers} == {REFUSED}
    assert len({heard.shape for heard in answers}) == 1
