"""Scopes of API keys: each public RPC has one, and keys name the scopes they have.

A method that is not in the table is closed to keys, so a new one is until its author has thought
about it. Callers without scopes, such as people who signed in, are not looked at here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jwt

from bos_chassis.auth.callers import Principal
from bos_errors import PermissionDenied

SCOPES: Final = (
    "runs.ask",
    "runs.read",
    "runs.operate",
    "files.read",
    "approvals.respond",
    "webhooks",
    "memory",
    "documents",
    "files",
    "account",
)
"""All scopes: ask and cancel; read runs; see and end those of others, for operators; download files
of runs; see and answer approval requests; add, list, try out and delete webhooks; read and change
conversations and what is remembered; upload, read, search and delete documents; list, download,
upload and delete files of the workspace; read one's account, sessions and keys, and end these."""
ANY_SCOPE: Final = "any"
"""Of methods that every key may call."""
PEOPLE_ONLY: Final = "people"
"""Of methods that no key may call."""

_ORCHESTRATOR: Final = "bos.gateway.v1.OrchestratorService"
_APPROVALS: Final = "bos.gateway.v1.ApprovalService"
_WEBHOOKS: Final = "bos.gateway.v1.WebhookService"
_FEEDBACK: Final = "bos.gateway.v1.FeedbackService"
_VERIFIED: Final = "bos.gateway.v1.VerifiedQueryService"
_OPERATOR: Final = "bos.gateway.v1.OperatorService"
_MEMORY: Final = "bos.memory.v1.MemoryService"
_DOCUMENTS: Final = "bos.documents.v1.DocumentsService"
_INGESTION: Final = "bos.documents.v1.IngestionService"
_AUDIT: Final = "bos.audit.v1.AuditService"
_FILES: Final = "bos.files.v1.FileService"
_IDENTITY: Final = "bos.identity.v1.IdentityService"
_KEYS: Final = "bos.identity.v1.ApiKeyService"
_CONNECTIONS: Final = "bos.identity.v1.ConnectionService"
_CREDENTIALS: Final = "bos.identity.v1.CredentialService"
_ADMINISTRATION: Final = "bos.identity.v1.AdministrationService"
_ACCOUNT: Final = "bos.identity.v1.AccountService"
_ACCOUNT_DATA: Final = "bos.account.v1.AccountDataService"

ERASE: Final = "account_data.erase"
EXPORT: Final = "account_data.export"
"""Scopes of identity's own tokens for the data of an account: no API key can have them."""

_BY_SCOPE: Final[dict[tuple[str, str], str]] = {
    (_ORCHESTRATOR, "runs.ask"): "Ask AskStream SubmitRun PlanQuestion CancelRun",
    (_ORCHESTRATOR, "runs.read"): "GetRun WatchRun ListRuns ListAgents",
    (_FEEDBACK, "runs.ask"): "SetRunFeedback DeleteRunFeedback",
    (_VERIFIED, "runs.ask"): "CreateVerifiedQuery DeleteVerifiedQuery",
    (_VERIFIED, "runs.read"): "ListVerifiedQueries",
    (_ORCHESTRATOR, "files.read"): "DownloadFile",
    (_OPERATOR, "runs.operate"): (
        "ListUserRuns GetUserRun CancelUserRun ListUserApprovals GetSpend GetStorage"
    ),
    (_INGESTION, "runs.operate"): "GetIngestionQueue",
    (_AUDIT, PEOPLE_ONLY): "ListAuditEntries",
    (_APPROVALS, "approvals.respond"): "ListApprovals GetApproval RespondApproval",
    (_WEBHOOKS, "webhooks"): (
        "CreateWebhook ListWebhooks GetWebhook DeleteWebhook TestWebhook ListWebhookDeliveries"
    ),
    (_MEMORY, "memory"): (
        "ListConversations GetConversation ListMessages UpdateConversation DeleteConversation "
        "GetLongTermMemory ListFacts UpdateLongTermMemory DeleteLongTermMemory"
    ),
    (_DOCUMENTS, "documents"): (
        "UploadDocument GetDocument ListDocuments DeleteDocument ReindexDocument WatchDocument "
        "SearchDocuments GetChunk ListChunks"
    ),
    (_FILES, "files"): "ListFiles GetFile DownloadFile UploadFile DeleteFile",
    (_IDENTITY, "account"): "GetUser ListSessions RevokeSession",
    (_CREDENTIALS, ANY_SCOPE): "CheckSession",
    (_IDENTITY, PEOPLE_ONLY): "ChangePassword",
    (_KEYS, "account"): "ListApiKeys RevokeApiKey",
    (_KEYS, PEOPLE_ONLY): "CreateApiKey",
    (_CONNECTIONS, "account"): "ListConnections",
    (_CONNECTIONS, PEOPLE_ONLY): "PutConnection DeleteConnection",
    (_ADMINISTRATION, PEOPLE_ONLY): (
        "ListUsers CreateServiceAccount SetUserRoles SetUserGroups DeactivateUser ReactivateUser "
        "DeleteUser CreatePasswordReset CreateInvitation ListInvitations RevokeInvitation"
    ),
    (_ACCOUNT, PEOPLE_ONLY): "DeleteAccount ExportAccount",
    (_ACCOUNT_DATA, ERASE): "EraseAccountData",
    (_ACCOUNT_DATA, EXPORT): "ExportAccountData",
}
SCOPE_OF: Final = {
    f"{service}/{method}": scope
    for (service, scope), methods in _BY_SCOPE.items()
    for method in methods.split()
}
"""The scope of each method as ``service/method``, of those that need a credential."""


def require_scope(principal: Principal | None, service: str, method: str) -> None:
    """Refuse a caller whose scopes do not name the method's.

    Raises:
        PermissionDenied: The caller's API key is not for this; says what it lacks.
    """
    if principal is None or principal.scopes is None:
        return
    scope = SCOPE_OF.get(f"{service}/{method}", PEOPLE_ONLY)
    if service == _ACCOUNT_DATA and scope not in principal.scopes:
        raise identity_only()
    if scope == PEOPLE_ONLY:
        raise PermissionDenied("API keys cannot do this; sign in.", reason="SIGN_IN_REQUIRED")
    if scope == ANY_SCOPE or scope in principal.scopes:
        return
    raise PermissionDenied(
        f"The API key lacks the scope {scope}.",
        reason="SCOPE_REQUIRED",
        metadata={"scope": scope},
    )


def identity_only() -> PermissionDenied:
    """The refusal of all callers but identity that ask a service for the data of an account."""
    return PermissionDenied(
        "Only identity asks for this. Delete or export an account with `bos account`.",
        reason="IDENTITY_ONLY",
    )


def data_scope(claims: Mapping[str, Any]) -> frozenset[str] | None:
    """The one thing that a token of identity's own is good for; None of all other tokens."""
    scope = claims.get("account_data")
    return frozenset((scope,)) if scope in (ERASE, EXPORT) else None


def key_and_scopes(claims: Mapping[str, Any]) -> tuple[str, frozenset[str] | None]:
    """The API key that an access token stands for, and its scopes; of other tokens none.

    Raises:
        jwt.InvalidTokenError: It stands for a key, and does not say what that may do.
    """
    key, scopes = claims.get("key"), claims.get("scopes")
    if key is None or scopes is None:
        return "", None
    if not (isinstance(key, str) and key and isinstance(scopes, list)):
        raise jwt.InvalidTokenError("stands for no key")
    if not all(isinstance(scope, str) and scope in SCOPES for scope in scopes):
        raise jwt.InvalidTokenError("names a scope that there is not")
    return key, frozenset(scopes)
