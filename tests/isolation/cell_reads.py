"""What ada reads of her own: the same before and after others have called."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from bos.documents.v1 import DocumentState
from bos.gateway.v1 import (
    RUN_STATUS_CANCELLED,
    RUN_STATUS_CLARIFICATION_NEEDED,
    RUN_STATUS_COMPOSING,
    RUN_STATUS_EXECUTING,
    RUN_STATUS_FAILED,
    RUN_STATUS_PARTIALLY_SUCCEEDED,
    RUN_STATUS_SUCCEEDED,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    Run,
)

from .cell_calls import TIMEOUT_S
from .cell_harness import CellHarness
from .isolation_harness import ASKS, HELD, KEEPS, SECRET

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


_CALLS: Mapping[str, Mapping[str, Any]] = {
    "OrchestratorService.ListRuns": {},
    "ApprovalService.ListApprovals": {},
    "WebhookService.ListWebhooks": {},
    "IdentityService.GetUser": {},
    "IdentityService.ListSessions": {},
    "ConnectionService.ListConnections": {},
    "AdministrationService.ListUsers": {"page_size": 200},
    "AdministrationService.ListInvitations": {},
    "MemoryService.ListConversations": {},
    "MemoryService.GetLongTermMemory": {},
    "DocumentsService.ListDocuments": {},
    "DocumentsService.SearchDocuments": {"query": SECRET},
    "FileService.ListFiles": {},
}


async def what_ada_reads(harness: CellHarness) -> dict[str, str]:
    """Everything, once her runs, and the reading of her documents, have come to rest."""
    async with asyncio.timeout(TIMEOUT_S):
        while not await _at_rest(harness):  # noqa: ASYNC110  it happens in the gateway
            await asyncio.sleep(0.01)
    ada, conversation = harness.people["ada"].user_id, harness.things["conversation"]
    calls = [
        *_CALLS.items(),
        ("ApiKeyService.ListApiKeys", {"user_id": ada}),
        ("MemoryService.ListMessages", {"conversation_id": conversation}),
        *(
            ("OrchestratorService.GetRun", {"run_id": each})
            for each in harness.services.runs.values()
        ),
    ]
    answers = await asyncio.gather(
        *(harness.services.call("ada", name, **fields) for name, fields in calls)
    )
    return {
        f"{name} {fields}": _lasting(answer)
        for (name, fields), answer in zip(calls, answers, strict=True)
    }


async def _at_rest(harness: CellHarness) -> bool:
    call = harness.services.call
    listed = await call("ada", "OrchestratorService.ListRuns", page_size=100)
    stored = await call("ada", "DocumentsService.ListDocuments")
    return all(_rests(run, harness.ended) for run in listed.runs) and all(
        each.state in _READ for each in stored.documents
    )


def _rests(run: Run, ended: set[str]) -> bool:
    if run.status in _OVER:
        return True
    word = _STAYS.get(run.status)
    return word is not None and word in run.question and run.run_id not in ended


def _lasting(answer: Any) -> str:
    """The answer without what time alone changes: uses of sessions and keys, posted events."""
    for each in getattr(answer, "webhooks", ()):
        each.ClearField("last_failure_time")
    for each in (*getattr(answer, "sessions", ()), *getattr(answer, "api_keys", ())):
        each.ClearField("last_use_time")
    return str(answer)
