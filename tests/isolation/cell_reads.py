"""What ada reads of her own: the same before and after others have called."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

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

from .cell_calls import TIMEOUT_S
from .cell_harness import bearer
from .isolation_harness import ASKS, HELD, KEEPS, SECRET

if TYPE_CHECKING:
    from bos.gateway.v1 import Run

    from .cell_harness import CellHarness

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


async def what_ada_reads(harness: CellHarness) -> dict[str, str]:
    """Everything, once her runs, and the reading of her documents, have come to rest."""
    async with asyncio.timeout(TIMEOUT_S):
        while not await _at_rest(harness):  # noqa: ASYNC110  it happens in the gateway
            await asyncio.sleep(0.01)
    services, how = harness.services, _how(harness)
    at_gateway, at_identity = (
        services.channels["bos.gateway.v1"],
        services.channels["bos.identity.v1"],
    )
    runs, identity = OrchestratorServiceStub(at_gateway), IdentityServiceStub(at_identity)
    administration = AdministrationServiceStub(at_identity)
    memory = MemoryServiceStub(services.channels["bos.memory.v1"])
    documents = DocumentsServiceStub(services.channels["bos.documents.v1"])
    workspace = FileServiceStub(services.channels["bos.files.v1"])
    of_ada = ListApiKeysRequest(user_id=harness.people["ada"].user_id)
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
    for run_id in harness.services.runs.values():
        calls[f"run {run_id}"] = runs.GetRun(GetRunRequest(run_id=run_id), **how)
    talk = ListMessagesRequest(conversation_id=harness.things["conversation"])
    calls["messages"] = memory.ListMessages(talk, **how)
    answers = await asyncio.gather(*calls.values())
    return {name: _lasting(answer) for name, answer in zip(calls, answers, strict=True)}


async def _at_rest(harness: CellHarness) -> bool:
    runs = OrchestratorServiceStub(harness.services.channels["bos.gateway.v1"])
    listed = await runs.ListRuns(ListRunsRequest(page_size=100), **_how(harness))
    documents = DocumentsServiceStub(harness.services.channels["bos.documents.v1"])
    stored = await documents.ListDocuments(ListDocumentsRequest(), **_how(harness))
    return all(_rests(run, harness.ended) for run in listed.runs) and all(
        each.state in _READ for each in stored.documents
    )


def _rests(run: Run, ended: set[str]) -> bool:
    if run.status in _OVER:
        return True
    word = _STAYS.get(run.status)
    return word is not None and word in run.question and run.run_id not in ended


def _how(harness: CellHarness) -> dict[str, Any]:
    return {"metadata": bearer(harness.people["ada"].access_token), "timeout": TIMEOUT_S}


def _lasting(answer: Any) -> str:
    """The answer without what time alone changes: uses of sessions and keys, posted events."""
    for each in getattr(answer, "webhooks", ()):
        each.ClearField("last_failure_time")
    for each in (*getattr(answer, "sessions", ()), *getattr(answer, "api_keys", ())):
        each.ClearField("last_use_time")
    return str(answer)
