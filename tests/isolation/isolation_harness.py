"""Services for users and REST on real ports, with two users signed in and what one of them has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import aiohttp
import grpc
import jwt
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from documents_doubles import engines
from gateway_harness.harness import ComposerDouble, PlannerDouble
from google.protobuf.message import Message

from bos.agent.v1 import AgentResult
from bos.common.v1 import DatabaseQuery
from bos.composer.v1 import ComposeResponse, add_ComposerServiceServicer_to_server
from bos.documents.v1 import DocumentState
from bos.gateway.v1 import AgentRequest, AskStreamRequest, OrchestratorServiceStub, RunEvent
from bos.memory.v1 import RecordTurnRequest
from bos.planner.v1 import MakePlanResponse, add_PlannerServiceServicer_to_server
from bos_agentkit import AgentTask
from bos_chassis.auth.access import AccessSettings
from bos_chassis.auth.callers import RUN_TOKEN_KEY, RunTokenSigner, generate_keypair
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_documents.service import serve as serve_documents
from bos_documents.settings import DocumentsSettings
from bos_files.service import serve as serve_files
from bos_files.settings import FilesSettings
from bos_gateway.service import serve as serve_gateway
from bos_gateway.settings import GatewaySettings
from bos_identity.service import serve as serve_identity
from bos_identity.settings import IdentitySettings
from bos_identity.signing.key_ring import new_key_encryption_key
from bos_memory.service import serve as serve_memory
from bos_memory.settings import MemorySettings
from bos_standalone.rest import find_binary, serve_rest
from bos_testkit.agents import EchoAgent, FileAgent, agent_server
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step

from .cell_calls import Metadata, answers_of, bearer
from .public_rpcs import all_rpcs

PASSWORD = "correct horse battery"
HELD = "Tell me slowly"
DRAWS = "Draw it"
"""In a question: its run has a file."""
UNCLEAR = "Whichever it is"
"""In a question: its run ends with a question to its user."""
KEEPS = "Keep at it"
"""In a question: the agent ``keeper`` works for its run, where there is one."""
ASKS = "Deploy it"
"""In a question: its run waits for an approval."""
SECRET = "violet-submarine"
"""Stands in everything that ada asks, and nowhere else."""
FILE = f"The plans of the {SECRET}".encode()
"""What one of ada's runs has made."""
FILE_NAME = "the-plan-of-ada.txt"
"""Of a file in her workspace, which holds the secret; no other user has one of this name."""
CONVERSATION = "a-conversation-of-ada"
_NOWHERE: Final = "http://127.0.0.1:9"
NEW_WEBHOOK: Final = f"{_NOWHERE}/everybody"
_RPCS: Final = {rpc.name: rpc for rpc in all_rpcs()}


class AskingPlanner(PlannerDouble):
    """Has nothing done, except for questions whose runs are meant to wait for an approval."""

    async def MakePlan(self, request: Any, context: Any) -> MakePlanResponse:
        answer = await super().MakePlan(request, context)
        if ASKS in request.question:
            asking = step("a", "deploy", f"deploy {SECRET} 1.2")
            asking.tools.append("trigger_deployment")
            answer.plan.steps.append(asking)
        if UNCLEAR in request.question:
            answer.clarification.questions.add(question=f"Which {SECRET}?")
        if KEEPS in request.question:
            answer.plan.steps.append(step("a", "keeper", request.question))
        if DRAWS in request.question:
            answer.plan.steps.append(step("a", "drawing", "draw"))
        return answer


class PatientComposer(ComposerDouble):
    """Answers at once, except questions that are meant to stay under way."""

    async def Compose(self, request: Any, context: Any) -> AsyncIterator[ComposeResponse]:
        if HELD in request.question:
            await asyncio.Event().wait()
        async for response in super().Compose(request, context):
            yield response


class QueryingFileAgent(FileAgent):
    """Succeeds with files, and with a query that they rest on."""

    async def behave(self, task: AgentTask) -> AgentResult:
        result = await super().behave(task)
        query = DatabaseQuery(database="company", dialect="postgres", sql="SELECT 1 FROM plans")
        query.tables.append("plans")
        result.query.CopyFrom(query)
        return result


@dataclass
class Person:
    user_id: str
    username: str
    session_id: str
    access_token: str
    refresh_token: str


@dataclass
class IsolationHarness:
    channels: dict[str, grpc.aio.Channel]
    """By package of the contracts: one server has all services of a package."""
    dsn: str
    rest_url: str
    http: aiohttp.ClientSession
    private_key: Any
    run_tokens: RunTokenSigner
    """Signs run tokens as the gateway does; every service has the key that verifies them."""
    public_run_key: str
    addresses: dict[str, str]
    metrics: dict[str, int | None]
    """Ports of the services' metrics."""
    people: dict[str, Person] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    """Ada's runs: one that has ended, one that is under way, one that asked her something."""
    things: dict[str, str] = field(default_factory=dict)
    """What is ada's, by what the table of cells calls it."""

    def token(self, **changes: Any) -> str:
        """An access token of eve's, signed by identity's own key, with other claims."""
        eve, now = self.people["eve"], int(time.time())
        claims = {
            "iss": "bos-identity",
            "aud": "bos",
            "sub": eve.user_id,
            "sid": eve.session_id,
            "iat": now,
            "exp": now + 600,
            **changes,
        }
        headers = jwt.get_unverified_header(eve.access_token)
        return jwt.encode(claims, self.private_key, algorithm="EdDSA", headers=headers)

    async def call(
        self,
        who: str,
        name: str,
        message: Message | None = None,
        /,
        *,
        content: bytes = b"",
        metadata: Metadata = (),
        **fields: Any,
    ) -> Any:
        """Response of an RPC called by a user, or with this metadata; of a stream, all messages."""
        rpc = _RPCS[name]
        channel = self.channels[rpc.service.rpartition(".")[0]]
        metadata = metadata or (bearer(self.people[who].access_token) if who else ())
        sent = rpc.message(**fields) if message is None else message
        answers = await answers_of(channel, rpc, rpc.messages(sent, content), metadata)
        return answers if rpc.streams else answers[0]

    async def ask(self, who: str, question: str, request_id: str) -> tuple[str, Any]:
        """Start a run; its id, and the stream that follows it."""
        stub = OrchestratorServiceStub(self.channels["bos.gateway.v1"])
        request = AgentRequest(
            question=question, request_id=request_id, conversation_id="the-conversation"
        )
        call = stub.AskStream(
            AskStreamRequest(request=request),
            timeout=120,
            metadata=bearer(self.people[who].access_token),
        )
        first = await call.read()
        return first.event.run_id, call

    async def ended(self, who: str, question: str, request_id: str) -> str:
        run_id, call = await self.ask(who, question, request_id)
        while await call.read() is not grpc.aio.EOF:
            pass
        return run_id

    async def sign_in(self, name: str) -> None:
        email = f"{name}@example.com"
        await self.call(
            "", "IdentityService.RegisterUser", username=name, email=email, password=PASSWORD
        )
        self.people[name] = await self.log_in(name)

    async def log_in(self, name: str) -> Person:
        login = await self.call("", "IdentityService.LogIn", username=name, password=PASSWORD)
        tokens, session = login.tokens, login.session.session_id
        return Person(login.user.user_id, name, session, tokens.access_token, tokens.refresh_token)

    async def api_key(self, who: str, scopes: list[str]) -> tuple[str, str]:
        """A key of a user with these scopes: its id, and the key itself."""
        made = await self.call(who, "ApiKeyService.CreateApiKey", name="a program", scopes=scopes)
        return made.api_key.key_id, made.secret

    async def give_document(self, name: str, text: str) -> str:
        """The id of a document of ada's that can be searched."""
        upload = "DocumentsService.UploadDocument"
        uploaded = await self.call("ada", upload, upload__name=name, content=text.encode())
        document_id = str(uploaded.document.document_id)
        seen = await self.call("ada", "DocumentsService.WatchDocument", document_id=document_id)
        assert seen[-1].document.state == DocumentState.DOCUMENT_STATE_READY
        return document_id

    async def give_file(self, name: str, text: str) -> str:
        upload = "FileService.UploadFile"
        uploaded = await self.call("ada", upload, upload__name=name, content=text.encode())
        return str(uploaded.file.name)

    async def give_webhook(self, path: str) -> str:
        """The id of a new webhook of ada's, at an address where no server answers."""
        made = await self.call("ada", "WebhookService.CreateWebhook", url=f"{_NOWHERE}/{path}")
        return str(made.webhook.webhook_id)

    async def give_verified_query(self, run_id: str) -> str:
        """The id of a new one, made of a run of ada's that has a query."""
        made = await self.call("ada", "VerifiedQueryService.CreateVerifiedQuery", run_id=run_id)
        return str(made.verified_query.query_id)

    async def record_turn(self, run_id: str, conversation_id: str) -> None:
        ada = self.people["ada"].user_id
        turn = RecordTurnRequest(
            user_id=ada,
            run_id=run_id,
            conversation_id=conversation_id,
            question=f"What about the {SECRET}?",
        )
        turn.ask_time.GetCurrentTime()
        turn.answer_time.GetCurrentTime()
        token = self.run_tokens.mint(ada, run_id, "", ["memory"], 60)
        metadata = ((RUN_TOKEN_KEY, token),)
        await self.call("", "MemoryTurnService.RecordTurn", turn, metadata=metadata)


@asynccontextmanager
async def open_isolation_harness(
    dsn: str,
    folder: Path,
    *,
    agents: Mapping[str, str] = MappingProxyType({}),
    identity_settings: Mapping[str, Any] = MappingProxyType({}),
) -> AsyncIterator[IsolationHarness]:
    """Everything that users can call, on an empty database.

    ``agents`` are more of them, by name, with their addresses; every user may call them.
    """
    private_pem, _ = generate_keypair()
    key_file = folder / "signing.pem"
    key_file.write_text(private_pem)
    server = ServerSettings.load(grace_s=0.2, metrics_port=0)
    telemetry = Telemetry.for_tests("harness")
    run_key, public_run_key = generate_keypair()
    data_services: dict[str, str] = {}
    binary = find_binary(None)
    assert binary is not None, "build it first: make rest"
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context

        async def double(servicer: object, add: Any, name: str) -> str:
            served = [Servicer(servicer, add, name)]
            plain = ServerSettings.load(grace_s=0.2)
            return (await enter(grpc_server(plain, served, telemetry=telemetry))).address

        common: dict[str, Any] = {"server": server, "store_url": dsn}
        identity_settings = {
            "auth": AuthSettings.load(run_token_public_keys=public_run_key),
            "signing_key_files": [key_file],
            "key_encryption_keys": new_key_encryption_key(),
            "access_token_s": 7200,
            "registration_open": True,
            "argon2_time_cost": 1,
            "argon2_memory_kib": 8,
            **identity_settings,
        }
        identity = await enter(
            serve_identity(
                IdentitySettings.load(**common, **identity_settings),
                telemetry.named("identity"),
                account_data=lambda: data_services,
            )
        )
        people: dict[str, Any] = {
            "issuer": "bos-identity",
            "identity_target": identity.address,
            "run_token_public_keys": public_run_key,
        }
        gateway_settings = {
            "auth": AuthSettings.load(**people),
            "run_token_private_key": run_key,
            # However busy the machine is, what is under way stays so.
            "run_timeout_s": 3600,
            "agent_timeout_s": 3600,
            "compose_timeout_s": 3600,
            "approval_timeout_s": 86400,
            "planner_target": await double(
                AskingPlanner(),
                add_PlannerServiceServicer_to_server,
                "bos.planner.v1.PlannerService",
            ),
            "composer_target": await double(
                PatientComposer(),
                add_ComposerServiceServicer_to_server,
                "bos.composer.v1.ComposerService",
            ),
            # What ada is asked about finance may answer as well, and approvers; what they
            # may use, and others may not, is with the agent that deploys.
            "approvers": {"deploy.*": {"groups": ["finance"], "roles": ["approver"]}},
            "access": AccessSettings.load(
                groups={"crew": {"agents": ["deploy"], "tools": ["deploy.*"]}},
                everybody={"agents": ["echo", "drawing", *agents], "tables": {"*": ["*"]}},
            ),
            "agent_targets": {
                "echo": await enter(agent_server(EchoAgent("echo"))),
                "deploy": await enter(agent_server(DeployAgent())),
                "drawing": await enter(
                    agent_server(QueryingFileAgent("drawing", {"plan.html": ("text/html", FILE)}))
                ),
                **agents,
            },
            "artefacts_url": (folder / "artefacts").as_uri(),
            "secrets_keys": "one=" + "A" * 43 + "=",
            "webhook_internal_origins": {_NOWHERE: ("127.0.0.0/8",)},
            # More than all callers of a table add.
            "max_webhooks_per_user": 100,
        }
        gateway = await enter(
            serve_gateway(
                GatewaySettings.load(**common, **gateway_settings), telemetry.named("gateway")
            )
        )
        memory_settings = MemorySettings.load(**common, auth=AuthSettings.load(**people))
        memory = await enter(serve_memory(memory_settings, telemetry.named("memory"), models=None))
        checked = AuthSettings.load(run_token_check_target=gateway.address, **people)
        documents_settings = DocumentsSettings.load(
            **common,
            auth=checked,
            files_url=(folder / "documents").as_uri(),
            spool_folder=folder / "spool",
            poll_s=0.5,
        )
        documents = await enter(
            serve_documents(
                documents_settings,
                telemetry.named("documents"),
                models=None,
                engines=engines(folder),
            )
        )
        files_settings = FilesSettings.load(
            **common, auth=checked, workspace_url=(folder / "files").as_uri()
        )
        files = await enter(serve_files(files_settings, telemetry.named("files"), models=None))
        served = {
            "gateway": gateway,
            "identity": identity,
            "memory": memory,
            "documents": documents,
            "files": files,
        }
        data_services |= {each.service: each.address for each in served.values()}
        del data_services[identity.service]
        rest = await enter(
            serve_rest(
                binary,
                **{f"{name}_target": each.address for name, each in served.items()},
                ports=(0,),
                grace_s=0.2,
                log=telemetry.named("rest").logger("bos.rest"),
            )
        )
        channels = {
            f"bos.{name}.v1": await enter(grpc.aio.insecure_channel(each.address))
            for name, each in served.items()
        }
        harness = IsolationHarness(
            channels={**channels, "bos.audit.v1": channels["bos.gateway.v1"]},
            dsn=dsn,
            rest_url=rest.url,
            http=await enter(aiohttp.ClientSession()),
            private_key=load_pem_private_key(private_pem.encode(), None),
            run_tokens=RunTokenSigner(run_key),
            public_run_key=public_run_key,
            addresses={each.service: each.address for each in served.values()},
            metrics={each.service: each.metrics_port for each in served.values()},
        )
        for name in ("ada", "eve"):
            await harness.sign_in(name)
        await _give_ada_an_account(harness)
        await _give_ada_runs(harness, stack)
        await _give_ada_data(harness)
        yield harness


async def _give_ada_an_account(harness: IsolationHarness) -> None:
    """A group whose agent deploys, which eve may not use; a key, connections, an invitation."""
    ada = harness.people["ada"].user_id
    await harness.call("ada", "AdministrationService.SetUserGroups", user_id=ada, groups=["crew"])
    harness.people["ada"] = await harness.log_in("ada")
    await harness.api_key("ada", ["account"])
    for kind in ("mail.gmail", "mail.imap"):
        password = f"password of the {SECRET}"
        await harness.call(
            "ada", "ConnectionService.PutConnection", kind=kind, label=SECRET, secret=password
        )
    await harness.call("ada", "AdministrationService.CreateInvitation")


async def _give_ada_runs(harness: IsolationHarness, stack: AsyncExitStack) -> None:
    ended = await harness.ended("ada", f"{DRAWS}: the {SECRET}?", "request-1")
    under_way, call = await harness.ask("ada", f"{HELD}: what of the {SECRET}?", "request-2")
    stack.callback(call.cancel)
    asking = await harness.ended("ada", f"{UNCLEAR}: the {SECRET}", "request-4")
    harness.runs = {"ended": ended, "under way": under_way, "asking": asking}
    _, call = await harness.ask("ada", f"{ASKS}: the {SECRET}", "request-3")
    stack.callback(call.cancel)
    event = RunEvent()
    while not event.HasField("approval_requested"):
        event = (await call.read()).event
    drawn = await harness.ended("ada", f"{DRAWS}: the {SECRET}, again", "drawn-again")
    harness.things |= {
        "run": ended,
        "run that asked": asking,
        "approval": event.approval_requested.approval.approval_id,
        "webhook": await harness.give_webhook(SECRET),
        "query": await harness.give_verified_query(ended),
        "doomed query": await harness.give_verified_query(drawn),
    }


async def _give_ada_data(harness: IsolationHarness) -> None:
    """Memory, a document with one passage, and a file of her workspace."""
    await harness.record_turn(harness.runs["ended"], CONVERSATION)
    update = "MemoryService.UpdateLongTermMemory"
    await harness.call("ada", update, memory__critical__user_name=SECRET)
    document = await harness.give_document(f"{SECRET}.txt", f"The {SECRET} of the documents.")
    found = await harness.call("ada", "DocumentsService.SearchDocuments", query=SECRET)
    harness.things |= {
        "conversation": CONVERSATION,
        "document": document,
        "passage": found.passages[0].chunk.chunk_id,
        "file": await harness.give_file(FILE_NAME, f"The {SECRET} of the workspace."),
    }
