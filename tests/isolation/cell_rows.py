"""The table: each RPC of each service once, of which kind it is, and what is asked for of ada's.

A new RPC fails ``test_cells`` until it has a row here. A row is a kind of ``cell_kinds`` and the
fields of a request that names something that ada has; the keys of ``harness.things`` say what there
is, and ``cell_harness`` makes it. Rows are called in this order, each ends with ada's own call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from bos.agent.v1 import AgentInput, ExecuteRequest, PrepareRequest, TaskMetadata
from bos.gateway.v1 import APPROVAL_DECISION_APPROVE, FEEDBACK_RATING_UP
from bos.memory.v1 import ExtractFactsRequest, RecordTurnRequest
from bos_agentkit import agent_card

from . import cell_kinds as kinds
from .cell_harness import CellHarness
from .cell_kinds import Kind, Outcome, open_to_all
from .isolation_harness import FILE, NEW_WEBHOOK, PASSWORD, SECRET

Request = Callable[["CellHarness"], "Message | Mapping[str, Any]"]


def nothing(_: CellHarness) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Row:
    kind: Kind
    request: Request = nothing
    """What everybody asks for."""
    owner: str = ""
    """Whose own call succeeds, if not the one of the kind's."""
    own: Request | None = None
    """What the owner asks for, where it takes a secret that others only guess."""
    shows: bool = False
    """Whether the owner hears of what is planted."""
    ends: str = ""
    """The run of ada's that the owner's call brings to its end, by what the table calls it."""
    targets: tuple[str, ...] = ()
    """The servers to ask, if not the one that is called like the package."""
    own_code: str = "OK"
    """How the owner's own call ends; another test shows its success where this harness cannot."""

    @property
    def who(self) -> str:
        return self.owner or self.kind.owner


def things(**fields: str) -> Request:
    """A request whose fields name things of ada's."""
    return lambda harness: {name: harness.things[thing] for name, thing in fields.items()}


def given(**fields: Any) -> Request:
    return lambda _: fields


def also(first: Request, **fields: Any) -> Request:
    return lambda harness: {**dict(first(harness)), **fields}  # type: ignore[arg-type]


def secrets(**fields: str) -> Request:
    return lambda harness: {name: harness.secrets[which] for name, which in fields.items()}


_REPLY = also(things(request__continues_run_id="run that asked"), request__question="The first one")
_NEW = "another one, longer"
_ANNS = "her own horse, battery"


def _execute(harness: CellHarness) -> Message:
    return ExecuteRequest(input=AgentInput(task=f"Look for {SECRET}", metadata=_step(harness)))


def _prepare(harness: CellHarness) -> Message:
    return PrepareRequest(metadata=_step(harness), question=f"What of {SECRET}?")


def _step(harness: CellHarness) -> TaskMetadata:
    claims = harness.claims("ada")
    return TaskMetadata(
        user_id=claims["sub"], run_id=claims["run"], step_key=claims["step"], attempt=1
    )


def _turn(harness: CellHarness) -> Message:
    claims = harness.claims("ada")
    turn = RecordTurnRequest(
        user_id=claims["sub"],
        run_id=claims["run"],
        conversation_id=harness.things["conversation"],
        question="What others say",
    )
    turn.ask_time.GetCurrentTime()
    turn.answer_time.GetCurrentTime()
    return turn


def _facts(harness: CellHarness) -> Message:
    facts = ExtractFactsRequest(
        user_id=harness.people["ada"].user_id, question="My name is Mallory."
    )
    facts.ask_time.GetCurrentTime()
    return facts


def _of_ada(harness: CellHarness) -> Mapping[str, Any]:
    return {
        "user_id": harness.people["ada"].user_id,
        "conversation_id": harness.things["conversation"],
        "max_messages": 9,
    }


def _keys_of_ada(harness: CellHarness) -> Mapping[str, Any]:
    return {"user_id": harness.people["ada"].user_id}


_GATEWAY = "bos.gateway.v1.OrchestratorService"
_FEEDBACK = "bos.gateway.v1.FeedbackService"
_VERIFIED = "bos.gateway.v1.VerifiedQueryService"
_OPERATOR = "bos.gateway.v1.OperatorService"
_APPROVALS = "bos.gateway.v1.ApprovalService"
_WEBHOOKS = "bos.gateway.v1.WebhookService"
_IDENTITY = "bos.identity.v1.IdentityService"
_KEYS = "bos.identity.v1.ApiKeyService"
_CONNECTIONS = "bos.identity.v1.ConnectionService"
_ADMINISTRATION = "bos.identity.v1.AdministrationService"
_MEMORY = "bos.memory.v1.MemoryService"
_TURNS = "bos.memory.v1.MemoryTurnService"
_DOCUMENTS = "bos.documents.v1.DocumentsService"
_FILES = "bos.files.v1.FileService"
_TABLES = "bos.files.v1.FileTableService"
_OF_TABLES = ("file_tables",)
_AGENTS = ("sql", "computation", "code", "files")
_ACCOUNTS = "bos.identity.v1.AccountService"
_OPENID = "bos.identity.v1.OpenIdService"
_DATA = "bos.account.v1.AccountDataService"
_NO_PROVIDER = Outcome("FAILED_PRECONDITION", "OPENID_NOT_CONFIGURED")
_EVERY_SERVER = ("*",)
_ACCOUNT = things(user_id="account")
_TALK = things(conversation_id="conversation")
_DOCUMENT = things(document_id="document")
_WEBHOOK = things(webhook_id="webhook")
_FAILS = Outcome("UNAUTHENTICATED", "LOGIN_FAILED")

ROWS: dict[str, Row] = {
    # -- gateway
    f"{_GATEWAY}/GetRun": Row(kinds.READS_RUN, things(run_id="run"), shows=True),
    f"{_GATEWAY}/WatchRun": Row(kinds.READS_RUN, things(run_id="run"), shows=True),
    f"{_GATEWAY}/DownloadFile": Row(
        kinds.READS_RUN,
        also(things(run_id="run"), digest=hashlib.sha256(FILE).hexdigest()),
        shows=True,
    ),
    f"{_GATEWAY}/ListRuns": Row(kinds.LISTS_OWN, shows=True),
    f"{_GATEWAY}/ListAgents": Row(kinds.LISTS_OWN),
    f"{_GATEWAY}/PlanQuestion": Row(kinds.CHANGES_RUN, _REPLY),
    f"{_GATEWAY}/Ask": Row(kinds.CHANGES_RUN, _REPLY),
    f"{_GATEWAY}/AskStream": Row(kinds.CHANGES_RUN, _REPLY),
    f"{_GATEWAY}/SubmitRun": Row(kinds.CHANGES_RUN, _REPLY),
    f"{_GATEWAY}/CancelRun": Row(
        kinds.CHANGES_RUN, things(run_id="run to cancel"), ends="run to cancel"
    ),
    f"{_FEEDBACK}/SetRunFeedback": Row(
        kinds.CHANGES_RUN,
        also(things(run_id="run"), feedback__rating=FEEDBACK_RATING_UP),
    ),
    f"{_FEEDBACK}/DeleteRunFeedback": Row(kinds.CHANGES_RUN, things(run_id="run")),
    f"{_OPERATOR}/ListUserRuns": Row(kinds.OPERATES, shows=True),
    f"{_OPERATOR}/GetUserRun": Row(kinds.OPERATES, things(run_id="run"), shows=True),
    f"{_OPERATOR}/CancelUserRun": Row(
        kinds.OPERATES,
        things(run_id="run"),  # has ended, so that no call changes it
        own=things(run_id="run for an operator to cancel"),
        ends="run for an operator to cancel",
        shows=True,
    ),
    f"{_OPERATOR}/ListUserApprovals": Row(kinds.OPERATES, shows=True),
    f"{_OPERATOR}/GetSpend": Row(kinds.OPERATES, shows=True),
    f"{_OPERATOR}/GetStorage": Row(kinds.OPERATES),
    "bos.audit.v1.AuditService/ListAuditEntries": Row(
        kinds.READS_TRAIL, given(service="gateway"), shows=True, targets=("gateway",)
    ),
    f"{_APPROVALS}/ListApprovals": Row(kinds.LISTS_OWN, shows=True),
    f"{_APPROVALS}/GetApproval": Row(kinds.READS_RUN, things(approval_id="approval"), shows=True),
    f"{_APPROVALS}/RespondApproval": Row(
        kinds.DECIDES,
        also(things(approval_id="approval"), decision=APPROVAL_DECISION_APPROVE),
        ends="run that waits",
    ),
    f"{_WEBHOOKS}/ListWebhooks": Row(kinds.LISTS_OWN, shows=True),
    f"{_WEBHOOKS}/GetWebhook": Row(kinds.READS_RUN, _WEBHOOK, shows=True),
    f"{_WEBHOOKS}/ListWebhookDeliveries": Row(kinds.READS_RUN, _WEBHOOK),
    f"{_WEBHOOKS}/CreateWebhook": Row(kinds.ADDS_OWN, given(url=NEW_WEBHOOK)),
    f"{_WEBHOOKS}/TestWebhook": Row(kinds.CHANGES_RUN, _WEBHOOK),
    f"{_WEBHOOKS}/DeleteWebhook": Row(kinds.CHANGES_RUN, things(webhook_id="webhook to delete")),
    f"{_VERIFIED}/ListVerifiedQueries": Row(kinds.READS_RUN, things(run_id="run"), shows=True),
    f"{_VERIFIED}/CreateVerifiedQuery": Row(kinds.CHANGES_RUN, things(run_id="run")),
    f"{_VERIFIED}/DeleteVerifiedQuery": Row(kinds.CHANGES_RUN, things(query_id="doomed query")),
    "bos.gateway.v1.RunTokenService/CheckRunToken": Row(kinds.ABOUT_RUN_TOKEN),
    # -- memory
    f"{_MEMORY}/ListConversations": Row(kinds.READS_OWN_MEMORY, shows=True),
    f"{_MEMORY}/GetConversation": Row(kinds.READS_MEMORY, _TALK, shows=True),
    f"{_MEMORY}/ListMessages": Row(kinds.READS_MEMORY, _TALK, shows=True),
    f"{_MEMORY}/UpdateConversation": Row(kinds.CHANGES_MEMORY, also(_TALK, title="Mine")),
    f"{_MEMORY}/DeleteConversation": Row(
        kinds.CHANGES_MEMORY, things(conversation_id="conversation to delete")
    ),
    f"{_TURNS}/OpenTurn": Row(kinds.GATEWAY_FOR_ITS_RUN, _of_ada, shows=True),
    f"{_TURNS}/ExtractFacts": Row(kinds.GATEWAY_FOR_ITS_RUN, _facts),
    f"{_TURNS}/RecordTurn": Row(kinds.GATEWAY_FOR_ITS_RUN, _turn),
    f"{_MEMORY}/GetLongTermMemory": Row(kinds.READS_OWN_MEMORY, shows=True),
    f"{_MEMORY}/ListFacts": Row(kinds.READS_OWN_MEMORY, shows=True),
    f"{_MEMORY}/UpdateLongTermMemory": Row(
        kinds.CHANGES_OWN_MEMORY, given(memory__preferences__tone="casual")
    ),
    f"{_MEMORY}/DeleteLongTermMemory": Row(kinds.CHANGES_OWN_MEMORY),
    # -- documents
    f"{_DOCUMENTS}/GetDocument": Row(kinds.READS_DOCUMENT, _DOCUMENT, shows=True),
    f"{_DOCUMENTS}/WatchDocument": Row(kinds.READS_DOCUMENT, _DOCUMENT, shows=True),
    f"{_DOCUMENTS}/ListDocuments": Row(kinds.LISTS_DOCUMENTS, shows=True),
    f"{_DOCUMENTS}/ListChunks": Row(kinds.READS_DOCUMENT, _DOCUMENT, shows=True),
    f"{_DOCUMENTS}/SearchDocuments": Row(kinds.SEARCHES, given(query="submarine"), shows=True),
    f"{_DOCUMENTS}/GetChunk": Row(kinds.READS_PASSAGE, things(chunk_id="passage"), shows=True),
    f"{_DOCUMENTS}/UploadDocument": Row(kinds.ADDS_DOCUMENT, given(upload__name="everybody.txt")),
    f"{_DOCUMENTS}/DeleteDocument": Row(
        kinds.CHANGES_DOCUMENT, things(document_id="document to delete")
    ),
    f"{_DOCUMENTS}/ReindexDocument": Row(
        kinds.CHANGES_DOCUMENT, things(document_id="document to read anew")
    ),
    "bos.documents.v1.IngestionService/GetIngestionQueue": Row(kinds.COUNTS_DOCUMENTS),
    # -- workspaces
    f"{_FILES}/ListFiles": Row(kinds.LISTS_FILES, shows=True),
    f"{_FILES}/GetFile": Row(kinds.READS_FILE, things(name="file")),
    f"{_FILES}/DownloadFile": Row(kinds.READS_FILE, things(name="file"), shows=True),
    f"{_FILES}/UploadFile": Row(kinds.ADDS_FILE, given(upload__name="everybody.txt")),
    f"{_FILES}/DeleteFile": Row(kinds.CHANGES_FILE, things(name="file to delete")),
    f"{_TABLES}/ListFileTables": Row(kinds.READS_FOR_USER, shows=True, targets=_OF_TABLES),
    f"{_TABLES}/QueryFileTables": Row(
        kinds.QUERIES_FOR_USER,
        given(sql="SELECT name FROM rows_of_ada"),
        shows=True,
        targets=_OF_TABLES,
    ),
    # -- identity: what is open to everybody, if they know a secret
    f"{_IDENTITY}/GetJsonWebKeySet": Row(open_to_all(kinds.OK)),
    f"{_IDENTITY}/GetOpenIdConfiguration": Row(open_to_all(kinds.OK)),
    f"{_IDENTITY}/RegisterUser": Row(
        open_to_all(Outcome("ALREADY_EXISTS", "ACCOUNT_TAKEN")),
        given(username="ada", email="mallory@example.com", password=PASSWORD),
        own=given(username="zoe", email="zoe@example.com", password=PASSWORD),
    ),
    f"{_IDENTITY}/LogIn": Row(
        open_to_all(_FAILS),
        given(username="ada", password="a wrong password"),
        own=given(username="ada", password=PASSWORD),
        shows=True,
    ),
    f"{_IDENTITY}/RefreshSession": Row(
        open_to_all(kinds.BAD_TOKEN),
        given(refresh_token="bosr_made-up"),
        own=secrets(refresh_token="to refresh"),
    ),
    f"{_IDENTITY}/LogOut": Row(
        open_to_all(kinds.OK),
        given(refresh_token="bosr_made-up"),
        own=secrets(refresh_token="to log out"),
    ),
    f"{_IDENTITY}/ResetPassword": Row(
        open_to_all(Outcome("PERMISSION_DENIED", "RESET_CODE_INVALID")),
        given(code="bosp_made-up", new_password=_NEW),
        own=lambda harness: {"code": harness.secrets["to reset"], "new_password": _NEW},
    ),
    "bos.identity.v1.CredentialService/ExchangeApiKey": Row(
        open_to_all(kinds.BAD_KEY),
        given(api_key=f"bosk_{'0' * 32}_{'x' * 43}"),
        own=secrets(api_key="key"),
    ),
    "bos.identity.v1.CredentialService/CheckSession": Row(kinds.ABOUT_SESSION),
    # -- identity: accounts
    f"{_IDENTITY}/GetUser": Row(kinds.OWN_ACCOUNT, shows=True),
    f"{_IDENTITY}/ListSessions": Row(kinds.OWN_ACCOUNT, shows=True),
    f"{_IDENTITY}/RevokeSession": Row(kinds.OF_ACCOUNT, things(session_id="session")),
    f"{_IDENTITY}/ChangePassword": Row(
        kinds.NEEDS_PASSWORD,
        given(current_password=_ANNS, new_password=_NEW),
        owner="ann",
        own=given(current_password=PASSWORD, new_password=_ANNS),
    ),
    f"{_KEYS}/ListApiKeys": Row(kinds.OTHERS_KEYS, _keys_of_ada, shows=True),
    f"{_KEYS}/CreateApiKey": Row(
        kinds.MAKES_KEYS, also(_keys_of_ada, name="mine", scopes=["account"])
    ),
    f"{_KEYS}/RevokeApiKey": Row(kinds.OF_ACCOUNT, things(key_id="key")),
    f"{_CONNECTIONS}/ListConnections": Row(kinds.OWN_ACCOUNT, shows=True),
    f"{_CONNECTIONS}/PutConnection": Row(
        kinds.CONNECTS, given(kind="mail.imap", label="Mine", secret="app password")
    ),
    f"{_CONNECTIONS}/DeleteConnection": Row(kinds.DISCONNECTS, given(kind="mail.gmail")),
    "bos.identity.v1.ConnectionSecretService/GetConnectionSecrets": Row(
        kinds.GATEWAY_ONLY, given(kinds=["mail.imap"])
    ),
    f"{_ADMINISTRATION}/ListUsers": Row(kinds.ADMINISTRATION, shows=True),
    f"{_ADMINISTRATION}/CreateServiceAccount": Row(kinds.ADMINISTRATION, given(username="a-robot")),
    f"{_ADMINISTRATION}/SetUserRoles": Row(kinds.ADMINISTRATION, also(_ACCOUNT, roles=["user"])),
    f"{_ADMINISTRATION}/SetUserGroups": Row(kinds.ADMINISTRATION, also(_ACCOUNT, groups=["crew"])),
    f"{_ADMINISTRATION}/DeactivateUser": Row(kinds.ADMINISTRATION, _ACCOUNT),
    f"{_ADMINISTRATION}/ReactivateUser": Row(kinds.ADMINISTRATION, _ACCOUNT),
    f"{_ADMINISTRATION}/CreatePasswordReset": Row(kinds.ADMINISTRATION, _ACCOUNT),
    f"{_ADMINISTRATION}/CreateInvitation": Row(kinds.ADMINISTRATION),
    f"{_ADMINISTRATION}/ListInvitations": Row(kinds.ADMINISTRATION, shows=True),
    f"{_ADMINISTRATION}/RevokeInvitation": Row(
        kinds.ADMINISTRATION, things(invitation_id="invitation")
    ),
    f"{_ADMINISTRATION}/DeleteUser": Row(kinds.ADMINISTRATION, _ACCOUNT),
    f"{_ACCOUNTS}/ExportAccount": Row(kinds.EXPORTS_OWN),
    f"{_ACCOUNTS}/DeleteAccount": Row(
        kinds.NEEDS_PASSWORD, given(current_password=_ANNS), owner="ann"
    ),
    f"{_DATA}/ExportAccountData": Row(kinds.IDENTITY_ONLY, targets=("gateway",)),
    f"{_DATA}/EraseAccountData": Row(kinds.IDENTITY_ONLY, targets=("gateway",)),
    # -- identity: signing in by a provider; see tests/integration/openid
    f"{_OPENID}/GetOpenIdProvider": Row(open_to_all(kinds.OK)),
    f"{_OPENID}/BeginOpenIdLogIn": Row(open_to_all(_NO_PROVIDER), own_code="FAILED_PRECONDITION"),
    f"{_OPENID}/FinishOpenIdLogIn": Row(
        open_to_all(_NO_PROVIDER), given(handle="boso_made-up"), own_code="FAILED_PRECONDITION"
    ),
    # -- what is not for people
    "bos.planner.v1.PlannerService/MakePlan": Row(
        kinds.GATEWAY_ONLY,
        lambda _: {"question": f"What of the {SECRET}?", "cards": [agent_card("echo", "Echoes.")]},
    ),
    "bos.planner.v1.PlannerService/ClassifyInstructions": Row(
        kinds.GATEWAY_ONLY, given(task=f"Deploy {SECRET}", instructions="Later", proposal="Deploy")
    ),
    "bos.composer.v1.ComposerService/Compose": Row(
        kinds.GATEWAY_ONLY, given(question=f"What of the {SECRET}?")
    ),
    "bos.sandbox.v1.SandboxService/RunProgram": Row(kinds.SERVES_STEPS, given(code="1 + 1")),
    "bos.sandbox.v1.SandboxService/GetCapabilities": Row(kinds.SERVES_STEPS),
    "bos.agent.v1.AgentService/Describe": Row(kinds.SERVES_STEPS, targets=_AGENTS),
    "bos.agent.v1.AgentService/Prepare": Row(kinds.WORKS_FOR_STEP, _prepare, targets=_AGENTS),
    "bos.agent.v1.AgentService/Execute": Row(kinds.WORKS_FOR_STEP, _execute, targets=_AGENTS),
    # -- probes and tools
    "grpc.health.v1.Health/Check": Row(open_to_all(kinds.OK), targets=_EVERY_SERVER),
    "grpc.health.v1.Health/Watch": Row(open_to_all(kinds.OK), targets=_EVERY_SERVER),
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Row(
        open_to_all(kinds.OK), given(list_services="*"), targets=_EVERY_SERVER
    ),
}

NOT_SERVED = ("grpc.health.v1.Health/List",)
"""Methods of contracts that are not ours, which no server of ours has."""
