"""What the suite knows about the public RPCs: whose ids they name, and what else a call needs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from isolation_harness import CONVERSATION, FILE, FILE_NAME, PASSWORD, SECRET
from isolation_webhooks import NEW_WEBHOOK
from public_rpcs import PublicRpc, public_rpcs

from bos.gateway.v1 import APPROVAL_DECISION_APPROVE, FEEDBACK_RATING_UP

if TYPE_CHECKING:
    from isolation_answers import Answer
    from isolation_harness import IsolationHarness

RPCS = public_rpcs()
OF_ADA = {
    "run_id": ("ended", "under way"),
    "session_id": ("session",),
    "approval_id": ("waiting",),
    "webhook_id": ("webhook",),
    "query_id": ("verified query",),
    "request__continues_run_id": ("asking", "ended", "under way"),
    "user_id": ("account",),
    "owner_id": ("account",),
    "key_id": ("API key",),
    "invitation_id": ("invitation",),
    "document_id": ("document",),
    "chunk_id": ("chunk",),
    "name": ("file",),
}
"""Fields that name something of a user's, and which of ada's things to name there."""
OF_ADA_IN_MEMORY = {"conversation_id": (CONVERSATION,)}
"""The same for memory: elsewhere ids of conversations are what callers make of them."""
OPTIONAL = frozenset({"request__continues_run_id", "user_id"})
"""Fields that name something of a user's in a call that works without them."""
CHOSEN_BY_CALLER = {
    "request__request_id": "request-1",
    "request__conversation_id": "the-conversation",
    "conversation_id": "the-conversation",
    "filter__document_ids": [],
    "step_id": "a",
}
"""Fields that callers fill with ids of their own; here with those that ada chose."""
QUESTION = {"request__question": "What is new?"}
REQUESTS: dict[str, dict[str, Any]] = {
    "OrchestratorService.Ask": QUESTION,
    "OrchestratorService.AskStream": QUESTION,
    "OrchestratorService.SubmitRun": QUESTION,
    "OrchestratorService.PlanQuestion": QUESTION,
    "OrchestratorService.DownloadFile": {"digest": hashlib.sha256(FILE).hexdigest()},
    "FeedbackService.SetRunFeedback": {"feedback__rating": FEEDBACK_RATING_UP},
    "ApprovalService.RespondApproval": {"decision": APPROVAL_DECISION_APPROVE},
    "WebhookService.CreateWebhook": {"url": NEW_WEBHOOK},
    "IdentityService.RegisterUser": {
        "username": "ada",
        "email": "mallory@example.com",
        "password": PASSWORD,
    },
    "IdentityService.LogIn": {"username": "ada", "password": "a wrong password"},
    "IdentityService.RefreshSession": {"refresh_token": "bosr_made-up"},
    "IdentityService.LogOut": {"refresh_token": "bosr_made-up"},
    "IdentityService.ChangePassword": {
        "current_password": "a wrong password",
        "new_password": "another one, longer",
    },
    "IdentityService.ResetPassword": {
        "code": "bosp_made-up",
        "new_password": "another one, longer",
    },
    "OpenIdService.FinishOpenIdLogIn": {"handle": "bosh_made-up"},
    "AccountService.DeleteAccount": {"current_password": "a wrong password"},
    "ApiKeyService.CreateApiKey": {"name": "mine", "scopes": ["account"]},
    "ConnectionService.PutConnection": {"kind": "mail.imap", "secret": "app password"},
    "ConnectionService.DeleteConnection": {"kind": "mail.imap"},
    "AdministrationService.CreateServiceAccount": {"username": "a-robot"},
    "AuditService.ListAuditEntries": {"service": "gateway"},
    "DocumentsService.UploadDocument": {"upload__name": "everybody.txt"},
    "DocumentsService.SearchDocuments": {"query": "What of the submarine?"},
    "FileService.UploadFile": {"upload__name": "everybody.txt"},
    "MemoryService.UpdateConversation": {"title": "Mine"},
    "MemoryService.UpdateLongTermMemory": {"memory__preferences__tone": "casual"},
}
"""Other fields that a call needs."""
OPEN = {
    "IdentityService.RegisterUser",
    "IdentityService.LogIn",
    "IdentityService.RefreshSession",
    "IdentityService.LogOut",
    "IdentityService.ResetPassword",
    "IdentityService.GetJsonWebKeySet",
    "IdentityService.GetOpenIdConfiguration",
    "OpenIdService.GetOpenIdProvider",
    "OpenIdService.BeginOpenIdLogIn",
    "OpenIdService.FinishOpenIdLogIn",
}
"""What needs no access token."""
BY_HAND = {"DocumentsService.UploadDocument", "FileService.UploadFile"}
"""What REST offers by handlers of its own and not by a binding; ``cells`` calls them there."""


def references_of_ada(rpc: PublicRpc) -> list[str]:
    of_memory = OF_ADA_IN_MEMORY if rpc.name.startswith("MemoryService.") else {}
    return [name for name in rpc.references if name in {**OF_ADA, **of_memory}]


def is_administration(rpc: PublicRpc) -> bool:
    return rpc.name.startswith(
        ("AdministrationService.", "OperatorService.", "IngestionService.", "AuditService.")
    )


ADMINISTRATION = [rpc for rpc in RPCS if is_administration(rpc)]
"""For administrators or operators only, with any arguments."""
_OF_USERS = [rpc for rpc in RPCS if not is_administration(rpc)]
NAMING = [rpc for rpc in _OF_USERS if references_of_ada(rpc)]
OTHERS = [rpc for rpc in _OF_USERS if OPTIONAL.issuperset(references_of_ada(rpc))]


def named(rpcs: list[PublicRpc]) -> Any:
    return pytest.mark.parametrize("rpc", rpcs, ids=lambda rpc: rpc.name)


def whats_of_ada(harness: IsolationHarness, field: str) -> list[str]:
    if field == "session_id":
        return [harness.people["ada"].session_id]
    if field == "conversation_id":
        return list(OF_ADA_IN_MEMORY[field])
    if field == "approval_id":
        return [harness.approval_id]
    if field == "webhook_id":
        return [harness.webhook_id]
    if field == "query_id":
        return [harness.query_id]
    if field in ("user_id", "owner_id"):
        return [harness.people["ada"].user_id]
    if field == "document_id":
        return [harness.document_id]
    if field == "name":
        return [FILE_NAME]
    if field == "chunk_id":
        return [harness.chunk_id]
    if field == "key_id":
        return [harness.key_id]
    if field == "invitation_id":
        return [harness.invitation_id]
    return [harness.runs[which] for which in OF_ADA[field]]


def request(rpc: PublicRpc, **fields: Any) -> Any:
    chosen = {name: CHOSEN_BY_CALLER[name] for name in rpc.references if CHOSEN_BY_CALLER.get(name)}
    if not OPTIONAL.isdisjoint(fields):
        # One's own run of this id would be found before it is looked what the request goes on from.
        chosen.pop("request__request_id", None)
    return rpc.message(**{**chosen, **REQUESTS.get(rpc.name, {}), **fields})


async def ways(
    harness: IsolationHarness, rpc: PublicRpc, message: Any, token: str | None
) -> dict[str, Answer]:
    """The answers to one call over gRPC and over each of its HTTP bindings."""
    answers = {"gRPC": await harness.grpc(rpc, message, token)}
    for binding in rpc.bindings:
        answers[f"{binding.verb} {binding.template}"] = await harness.rest(
            *binding.request(message), token
        )
    return answers


def traces_of_ada(harness: IsolationHarness, content: str, said: str = "") -> list[str]:
    """What only ada can know, in an answer to somebody who had ``said`` it or not."""
    ada = harness.people["ada"]
    known = [ada.user_id, ada.session_id, "ada@example.com", SECRET, *harness.runs.values()]
    known += [harness.approval_id, harness.key_id, harness.invitation_id]
    known += [harness.document_id, harness.chunk_id, FILE_NAME]
    return [each for each in known if each in content and each not in said]
