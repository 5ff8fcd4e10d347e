"""What each kind of caller hears at each kind of RPC, and of which kind every RPC is.

A new RPC fails ``test_callers.py`` until it stands here. Choose its kind by who may call it; make a
new kind only if none says so.
"""

from __future__ import annotations

from typing import Final

CALLERS: Final = (
    "stranger",
    "other user",
    "other group",
    "operator",
    "run token",
    "expired",
    "revoked",
    "key without scope",
)

MISSING: Final = ("UNAUTHENTICATED", "CREDENTIAL_MISSING")
TOKEN: Final = ("UNAUTHENTICATED", "TOKEN_INVALID")
KEY: Final = ("UNAUTHENTICATED", "API_KEY_INVALID")
SCOPE: Final = ("PERMISSION_DENIED", "SCOPE_REQUIRED")
PEOPLE: Final = ("PERMISSION_DENIED", "SIGN_IN_REQUIRED")
ROLE: Final = ("PERMISSION_DENIED", "ROLE_REQUIRED")
IDENTITY: Final = ("PERMISSION_DENIED", "IDENTITY_ONLY")
ABSENT: Final = ("as what is not there", "")
"""What somebody hears who names a thing that nobody has."""
NOTHING: Final = ("nothing of hers", "")
"""Whatever it is, there is nothing in it that is the owner's."""
CLOSED: Final = ("closed", "")
"""Refused for who calls, by either code: nothing but a run token opens it."""

_REFUSED: Final = {"stranger": MISSING, "run token": TOKEN, "expired": TOKEN, "revoked": KEY}
_OTHERS: Final = ("other user", "other group", "operator")


def _kind(others: tuple[str, str], key: tuple[str, str] = SCOPE) -> dict[str, tuple[str, str]]:
    return {**_REFUSED, **dict.fromkeys(_OTHERS, others), "key without scope": key}


KINDS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "open": dict.fromkeys(CALLERS, NOTHING),
    "names a thing": _kind(ABSENT),
    "one's own": _kind(NOTHING),
    "a person's own": _kind(NOTHING, PEOPLE),
    "administrators'": _kind(ROLE, PEOPLE),
    "whoever is known": _kind(NOTHING, NOTHING),
    "identity's": _kind(IDENTITY, IDENTITY),
    "a run's": dict.fromkeys(CALLERS, CLOSED),
}

_BY_KIND: Final[dict[str, dict[str, str]]] = {
    "open": {
        "IdentityService": "RegisterUser LogIn RefreshSession LogOut ResetPassword "
        "GetJsonWebKeySet GetOpenIdConfiguration",
        "CredentialService": "ExchangeApiKey",
        "AgentService": "Describe",
    },
    "names a thing": {
        "OrchestratorService": "GetRun WatchRun CancelRun DownloadFile",
        "ApprovalService": "GetApproval RespondApproval",
        "MemoryService": "GetConversation ListMessages UpdateConversation DeleteConversation",
        "IdentityService": "RevokeSession",
        "ApiKeyService": "RevokeApiKey",
    },
    "one's own": {
        "OrchestratorService": "Ask AskStream PlanQuestion ListRuns ListAgents",
        "ApprovalService": "ListApprovals",
        "MemoryService": "ListConversations GetLongTermMemory UpdateLongTermMemory "
        "DeleteLongTermMemory",
        "IdentityService": "GetUser ListSessions",
        "ApiKeyService": "ListApiKeys",
    },
    "a person's own": {
        "IdentityService": "ChangePassword",
        "ApiKeyService": "CreateApiKey",
        "AccountService": "DeleteAccount ExportAccount",
    },
    "administrators'": {
        "AdministrationService": "ListUsers CreateServiceAccount SetUserRoles SetUserGroups "
        "DeactivateUser ReactivateUser DeleteUser CreatePasswordReset CreateInvitation "
        "ListInvitations RevokeInvitation",
    },
    "whoever is known": {"CredentialService": "CheckSession"},
    "identity's": {"AccountDataService": "EraseAccountData ExportAccountData"},
    "a run's": {
        "AgentService": "Prepare Execute",
        "PlannerService": "MakePlan ClassifyInstructions",
        "ComposerService": "Compose",
        "SandboxService": "RunProgram GetCapabilities",
        "MemoryTurnService": "OpenTurn ExtractFacts RecordTurn",
        "RunTokenService": "CheckRunToken",
    },
}

KIND_OF: Final = {
    f"{service}.{method}": kind
    for kind, services in _BY_KIND.items()
    for service, methods in services.items()
    for method in methods.split()
}
"""The kind of every RPC of the contracts."""

_ASKED: Final[dict[str, object]] = {"user_id": "ada", "question": "q", "ask_time__seconds": 1}
FIELDS: Final[dict[str, dict[str, object]]] = {
    "MemoryTurnService.OpenTurn": {"user_id": "ada", "conversation_id": "c"},
    "MemoryTurnService.ExtractFacts": _ASKED,
    "MemoryTurnService.RecordTurn": {
        **_ASKED,
        "run_id": "r",
        "conversation_id": "c",
        "answer_time__seconds": 1,
    },
}
"""What an internal call needs to be refused for its caller and not for its form."""
