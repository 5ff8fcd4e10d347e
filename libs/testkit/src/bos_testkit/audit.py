"""Contents of audit trails, and which calls must leave an entry there."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from bos_postgres import connect
from bos_postgres.audit import SealedEntry, checkpoint, read, seal, verify

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bos_postgres.connections import Session

AUDITED: Final[Mapping[str, str]] = {
    "bos.audit.v1.AuditService/ListAuditEntries": "audit.read",
    "bos.documents.v1.DocumentsService/DeleteDocument": "document.deleted",
    "bos.documents.v1.DocumentsService/ReindexDocument": "document.reindexed",
    "bos.documents.v1.DocumentsService/UploadDocument": "document.uploaded",
    "bos.documents.v1.IngestionService/GetIngestionQueue": "ingestion.read",
    "bos.files.v1.FileService/DeleteFile": "file.deleted",
    "bos.files.v1.FileService/UploadFile": "file.uploaded",
    "bos.gateway.v1.ApprovalService/RespondApproval": "approval.answered",
    "bos.gateway.v1.OperatorService/CancelUserRun": "run.cancelled",
    "bos.gateway.v1.OperatorService/GetSpend": "spend.read",
    "bos.gateway.v1.OperatorService/GetStorage": "storage.read",
    "bos.gateway.v1.OperatorService/GetUserRun": "run.inspected",
    "bos.gateway.v1.OperatorService/ListUserApprovals": "approvals.listed",
    "bos.gateway.v1.OperatorService/ListUserRuns": "runs.listed",
    "bos.gateway.v1.OrchestratorService/Ask": "question.asked",
    "bos.gateway.v1.OrchestratorService/AskStream": "question.asked",
    "bos.gateway.v1.OrchestratorService/CancelRun": "run.cancelled",
    "bos.gateway.v1.OrchestratorService/DownloadFile": "file.read",
    "bos.gateway.v1.OrchestratorService/SubmitRun": "question.asked",
    "bos.gateway.v1.VerifiedQueryService/CreateVerifiedQuery": "query.verified",
    "bos.gateway.v1.VerifiedQueryService/DeleteVerifiedQuery": "query.unverified",
    "bos.gateway.v1.WebhookService/CreateWebhook": "webhook.created",
    "bos.gateway.v1.WebhookService/DeleteWebhook": "webhook.deleted",
    "bos.identity.v1.AdministrationService/CreateInvitation": "account.invited",
    "bos.identity.v1.AdministrationService/CreatePasswordReset": "password.reset_issued",
    "bos.identity.v1.AdministrationService/CreateServiceAccount": "service_account.created",
    "bos.identity.v1.AccountService/DeleteAccount": "account.deletion_requested",
    "bos.identity.v1.AdministrationService/DeactivateUser": "account.deactivated",
    "bos.identity.v1.AdministrationService/DeleteUser": "account.deletion_requested",
    "bos.identity.v1.AdministrationService/ReactivateUser": "account.reactivated",
    "bos.identity.v1.AdministrationService/RevokeInvitation": "invitation.revoked",
    "bos.identity.v1.AdministrationService/SetUserGroups": "groups.changed",
    "bos.identity.v1.AdministrationService/SetUserRoles": "roles.changed",
    "bos.identity.v1.ApiKeyService/CreateApiKey": "api_key.created",
    "bos.identity.v1.ApiKeyService/RevokeApiKey": "api_key.revoked",
    "bos.identity.v1.ConnectionSecretService/GetConnectionSecrets": "connection.handed_out",
    "bos.identity.v1.ConnectionService/DeleteConnection": "connection.deleted",
    "bos.identity.v1.ConnectionService/PutConnection": "connection.created",
    "bos.identity.v1.IdentityService/ChangePassword": "password.changed",
    "bos.identity.v1.IdentityService/LogIn": "session.opened",
    "bos.identity.v1.IdentityService/LogOut": "session.ended",
    "bos.identity.v1.IdentityService/RegisterUser": "account.registered",
    "bos.identity.v1.IdentityService/ResetPassword": "password.reset",
    "bos.identity.v1.IdentityService/RevokeSession": "session.ended",
    "bos.identity.v1.OpenIdService/FinishOpenIdLogIn": "session.opened",
    "bos.memory.v1.MemoryService/DeleteConversation": "conversation.deleted",
    "bos.memory.v1.MemoryService/DeleteLongTermMemory": "memory.deleted",
    "bos.memory.v1.MemoryService/UpdateConversation": "conversation.renamed",
    "bos.memory.v1.MemoryService/UpdateLongTermMemory": "memory.changed",
    "bos.memory.v1.MemoryTurnService/ExtractFacts": "memory.extended",
}
"""The action of the entry that a call leaves, by its method."""

NOT_AUDITED: Final[Mapping[str, str]] = {
    "bos.account.v1.AccountDataService/EraseAccountData": "identity logs the request "
    "for the deletion of an account, and its completion",
    "bos.agent.v1.AgentService/Execute": "a step of a run; the gateway logs what it may read",
    "bos.composer.v1.ComposerService/Compose": "words an answer; keeps nothing",
    "bos.gateway.v1.FeedbackService/DeleteRunFeedback": "takes back an opinion; nothing follows "
    "from it",
    "bos.gateway.v1.FeedbackService/SetRunFeedback": "an opinion on an answer; nothing "
    "follows from it",
    "bos.gateway.v1.WebhookService/TestWebhook": "posts a test to an address that an entry holds",
    "bos.identity.v1.CredentialService/ExchangeApiKey": "a token of a minute stands for a key; "
    "what it does is logged under the key's id",
    "bos.identity.v1.IdentityService/RefreshSession": "continues a session whose start and "
    "end are logged",
    "bos.identity.v1.OpenIdService/BeginOpenIdLogIn": "no user is known yet; the session is "
    "logged when it is opened",
    "bos.memory.v1.MemoryTurnService/RecordTurn": "a question that the gateway has logged",
    "bos.planner.v1.PlannerService/ClassifyInstructions": "reads; keeps nothing",
    "bos.planner.v1.PlannerService/MakePlan": "makes a plan; keeps nothing",
    "bos.sandbox.v1.SandboxService/RunProgram": "a step of a run; the gateway logs what it may "
    "read",
}
"""Why a call that may change something leaves none."""

_ROWS: Final = """
SELECT * FROM (
    SELECT 1 AS place, entry_id AS at, actor, actor_kind, action, target, outcome, address, details
    FROM audit_pending
    UNION ALL
    SELECT 0, position, actor, actor_kind, action, target, outcome, address, details
    FROM audit_trail
) AS entries WHERE $1 IN ('', action) ORDER BY place, at
"""


def audited(service: str) -> set[str]:
    """Methods of a service, such as ``identity``, whose calls leave entries."""
    return {method for method in AUDITED if method.startswith(f"bos.{service}.")}


async def audit_entries(dsn: str, schema: str, action: str = "") -> list[dict[str, Any]]:
    """The entries of a service in their order, sealed or not; all, or those of one action."""
    async with connect(dsn, schema=schema) as session:
        rows = await session.fetch(_ROWS, action)
    return [{**row, "details": json.loads(row["details"])} for row in rows]


@asynccontextmanager
async def refused_entries(dsn: str, schema: str, action: str) -> AsyncIterator[None]:
    """The database refuses entries of an action for the length of the block."""
    async with connect(dsn, schema=schema) as session:
        await session.execute(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'not now'; END $$; "
            "CREATE TRIGGER refused BEFORE INSERT ON audit_pending FOR EACH ROW "
            f"WHEN (NEW.action = '{action}') EXECUTE FUNCTION refuse()"
        )
        yield
        await session.execute("DROP TRIGGER refused ON audit_pending")


async def until_audited(dsn: str, schema: str, action: str) -> list[dict[str, Any]]:
    """The entries of an action, once there is one.

    Raises:
        TimeoutError: there is none within a minute.
    """
    async with asyncio.timeout(60):
        while not (found := await audit_entries(dsn, schema, action)):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    return found


async def seal_all(session: Session) -> None:
    """Seal all pending entries, also while a running service is sealing.

    Raises:
        TimeoutError: something is still pending after a minute.
    """
    async with asyncio.timeout(60):
        while await session.fetchval("SELECT EXISTS (SELECT FROM audit_pending)"):
            if await seal(session) is None:
                await asyncio.sleep(0.001)


async def sealed_trail(dsn: str, schema: str) -> list[SealedEntry]:
    """All entries of a service, sealed now; asserts that the chain is whole."""
    async with connect(dsn, schema=schema) as session:
        await seal_all(session)
        start, entries = await checkpoint(session), list[SealedEntry]()
        after = start.position
        while page := await read(session, after):
            entries += page
            after = page[-1].position
    assert verify(start, entries) is None
    return entries
