"""API keys reach what their scopes name and nothing else, at every public RPC, in every way."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from isolation_cases import OPEN, RPCS, named, references_of_ada, request, ways, whats_of_ada
from isolation_credentials import api_key

from bos.identity.v1 import ApiKeyServiceStub, RevokeApiKeyRequest
from bos_chassis.auth.scopes import PEOPLE_ONLY, SCOPE_OF, SCOPES

if TYPE_CHECKING:
    from isolation_harness import IsolationHarness
    from public_rpcs import PublicRpc

pytestmark = [pytest.mark.isolation, pytest.mark.asyncio(loop_scope="module")]

CLOSED = [rpc for rpc in RPCS if rpc.name not in OPEN]
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
"""Calls that change nothing and name nothing."""


@named(CLOSED)
async def test_a_key_without_the_scope_opens_nothing(
    rpc: PublicRpc, harness: IsolationHarness
) -> None:
    scope = SCOPE_OF[rpc.path.removeprefix("/")]
    # Ada's own key on what is ada's: the scope is all that is missing.
    _, key = await api_key(
        harness, harness.people["ada"], [each for each in SCOPES if each != scope]
    )
    fields = {name: whats_of_ada(harness, name)[0] for name in references_of_ada(rpc)}
    for way, answer in (await ways(harness, rpc, request(rpc, **fields), key)).items():
        reason = "SIGN_IN_REQUIRED" if scope == PEOPLE_ONLY else "SCOPE_REQUIRED"
        assert answer.shape[:2] == ("PERMISSION_DENIED", reason), way


@named(CLOSED)
async def test_a_key_that_was_revoked_or_made_up_opens_nothing(
    rpc: PublicRpc, harness: IsolationHarness
) -> None:
    ada = harness.people["ada"]
    key_id, revoked = await api_key(harness, ada, SCOPES)
    await ApiKeyServiceStub(harness.channels["bos.identity.v1"]).RevokeApiKey(
        RevokeApiKeyRequest(key_id=key_id),
        metadata=(("authorization", f"Bearer {ada.access_token}"),),
    )
    fields = {name: whats_of_ada(harness, name)[0] for name in references_of_ada(rpc)}
    shapes = set()
    for key in (revoked, f"bosk_{uuid4().hex}_{'x' * 43}", "bosk_"):
        for answer in (await ways(harness, rpc, request(rpc, **fields), key)).values():
            shapes.add(answer.shape)
    assert {shape[:2] for shape in shapes} == {("UNAUTHENTICATED", "API_KEY_INVALID")}
    assert len(shapes) == 1


@named([rpc for rpc in RPCS if rpc.name in QUIET])
async def test_a_key_with_the_scope_is_answered(rpc: PublicRpc, harness: IsolationHarness) -> None:
    _, key = await api_key(harness, harness.people["eve"], [SCOPE_OF[rpc.path.removeprefix("/")]])
    for way, answer in (await ways(harness, rpc, rpc.message(), key)).items():
        assert answer.code == "OK", (way, answer)
