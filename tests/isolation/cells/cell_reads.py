"""What ada reads of her own: the same before and after others have called."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cell_calls import TIMEOUT_S
from cell_estate import bearer
from isolation_harness import ASKS, HELD, KEEPS, SECRET

from bos.documents.v1 import (
    DocumentsServiceStub,
    DocumentState,
    ListDocumentsRequest,
    SearchDocumentsRequest,
)
from bos.files.v1 import FileServiceStub, ListFilesRequest
from bos.gateway.v1 import (
    RUN_STATUS_CANCELLED,
    RUN_STATUS_CLARIFICATION_NEEDED,
    RUN_STATUS_COMPOSING,
    RUN_STATUS_EXECUTING,
    RUN_STATUS_FAILED,
    RUN_STATUS_PARTIALLY_SUCCEEDED,
    RUN_STATUS_SUCCEEDED,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    ApprovalServiceStub,
    GetRunRequest,
    ListApprovalsRequest,
    ListRunsRequest,
    ListWebhooksRequest,
    OrchestratorServiceStub,
    WebhookServiceStub,
)
from bos.identity.v1 import (
    AdministrationServiceStub,
    ApiKeyServiceStub,
    ConnectionServiceStub,
    GetUserRequest,
    IdentityServiceStub,
    ListApiKeysRequest,
    ListConnectionsRequest,
    ListInvitationsRequest,
    ListSessionsRequest,
    ListUsersRequest,
)
from bos.memory.v1 import (
    GetLongTermMemoryRequest,
    ListConversationsRequest,
    ListMessagesRequest,
    MemoryServiceStub,
)

if TYPE_CHECKING:
    from cell_estate import Estate

    from bos.gateway.v1 import Run

_OVER = (
    RUN_STATUS_SUCCEEDED,
    RUN_STATUS_PARTIALLY_SUCCEEDED,
    RUN_STATUS_FAILED,
    RUN_STATUS_CANCELLED,
    RUN_STATUS_CLARIFICATION_NEEDED,
)
_READ = (DocumentState.DOCUMENT_STATE_READY, DocumentState.DOCUMENT_STATE_FAILED)
_STAYS = {
    RUN_STATUS_EXECUTING: KEEPS,
    RUN_STATUS_COMPOSING: HELD,
    RUN_STATUS_WAITING_FOR_APPROVAL: ASKS,
}
"""Runs that stay as they are, with such words in their question, until ada ends them."""


async def what_ada_reads(estate: Estate) -> dict[str, str]:
    """Everything, once her runs, and the reading of her documents, have come to rest."""
    async with asyncio.timeout(TIMEOUT_S):
        while not await _at_rest(estate):  # noqa: ASYNC110  it happens in the gateway
            await asyncio.sleep(0.01)
    harness, how = estate.harness, _how(estate)
    at_gateway, at_identity = (
        harness.channels["bos.gateway.v1"],
        harness.channels["bos.identity.v1"],
    )
    runs, identity = OrchestratorServiceStub(at_gateway), IdentityServiceStub(at_identity)
    administration = AdministrationServiceStub(at_identity)
    memory = MemoryServiceStub(harness.channels["bos.memory.v1"])
    documents = DocumentsServiceStub(harness.channels["bos.documents.v1"])
    workspace = FileServiceStub(harness.channels["bos.files.v1"])
    of_ada = ListApiKeysRequest(user_id=estate.people["ada"].user_id)
    calls = {
        "runs": runs.ListRuns(ListRunsRequest(), **how),
        "approvals": ApprovalServiceStub(at_gateway).ListApprovals(ListApprovalsRequest(), **how),
        "webhooks": WebhookServiceStub(at_gateway).ListWebhooks(ListWebhooksRequest(), **how),
        "account": identity.GetUser(GetUserRequest(), **how),
        "sessions": identity.ListSessions(ListSessionsRequest(), **how),
        "keys": ApiKeyServiceStub(at_identity).ListApiKeys(of_ada, **how),
        "connections": ConnectionServiceStub(at_identity).ListConnections(
            ListConnectionsRequest(), **how
        ),
        "users": administration.ListUsers(ListUsersRequest(page_size=200), **how),
        "invitations": administration.ListInvitations(ListInvitationsRequest(), **how),
        "conversations": memory.ListConversations(ListConversationsRequest(), **how),
        "documents": documents.ListDocuments(ListDocumentsRequest(), **how),
        "passages": documents.SearchDocuments(SearchDocumentsRequest(query=SECRET), **how),
        "files": workspace.ListFiles(ListFilesRequest(), **how),
        "remembered": memory.GetLongTermMemory(GetLongTermMemoryRequest(), **how),
    }
    for run_id in estate.harness.runs.values():
        calls[f"run {run_id}"] = runs.GetRun(GetRunRequest(run_id=run_id), **how)
    talk = ListMessagesRequest(conversation_id=estate.things["conversation"])
    calls["messages"] = memory.ListMessages(talk, **how)
    answers = await asyncio.gather(*calls.values())
    return {name: _lasting(answer) for name, answer in zip(calls, answers, strict=True)}


async def _at_rest(estate: Estate) -> bool:
    runs = OrchestratorServiceStub(estate.harness.channels["bos.gateway.v1"])
    listed = await runs.ListRuns(ListRunsRequest(page_size=100), **_how(estate))
    documents = DocumentsServiceStub(estate.harness.channels["bos.documents.v1"])
    stored = await documents.ListDocuments(ListDocumentsRequest(), **_how(estate))
    return all(_rests(run, estate.ended) for run in listed.runs) and all(
        each.state in _READ for each in stored.documents
    )


def _rests(run: Run, ended: set[str]) -> bool:
    if run.status in _OVER:
        return True
    word = _STAYS.get(run.status)
    return word is not None and word in run.question and run.run_id not in ended


def _how(estate: Estate) -> dict[str, Any]:
    return {"metadata": bearer(estate.people["ada"].access_token), "timeout": TIMEOUT_S}


def _lasting(answer: Any) -> str:
    """The answer without what time alone changes: uses of sessions and keys, posted events."""
    for each in getattr(answer, "webhooks", ()):
        each.ClearField("last_failure_time")
    for each in (*getattr(answer, "sessions", ()), *getattr(answer, "api_keys", ())):
        each.ClearField("last_use_time")
    return str(answer)
