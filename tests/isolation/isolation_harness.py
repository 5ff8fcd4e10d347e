"""Gateway, identity and REST on real ports, with two people signed in and what one of them has."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc
import jwt
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from gateway_harness.harness import ComposerDouble, PlannerDouble

from bos.composer.v1 import add_ComposerServiceServicer_to_server
from bos.gateway.v1 import AgentRequest, AskStreamRequest, OrchestratorServiceStub, RunEvent
from bos.identity.v1 import (
    AdministrationServiceStub,
    IdentityServiceStub,
    LogInRequest,
    RegisterUserRequest,
    SetUserGroupsRequest,
)
from bos.memory.v1 import (
    MemoryServiceStub,
    MemoryTurnServiceStub,
    RecordTurnRequest,
    UpdateLongTermMemoryRequest,
)
from bos.planner.v1 import add_PlannerServiceServicer_to_server
from bos_chassis.auth.access import AccessSettings
from bos_chassis.auth.callers import RUN_TOKEN_KEY, RunTokenSigner, generate_keypair
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import AuthSettings, ServerSettings, TelemetrySettings
from bos_chassis.telemetry import Telemetry
from bos_gateway.service import serve as serve_gateway
from bos_gateway.settings import GatewaySettings
from bos_identity.service import serve as serve_identity
from bos_identity.settings import IdentitySettings
from bos_identity.signing.key_ring import new_key_encryption_key
from bos_memory.service import serve as serve_memory
from bos_memory.settings import MemorySettings
from bos_standalone.rest import find_binary, serve_rest
from bos_testkit.agents import EchoAgent, agent_server
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step

from .isolation_credentials import give_credentials
from .isolation_documents import documents_for, give_secret
from .isolation_files import files_for, give_file
from .isolation_verified import QueryingFileAgent, give_verified_query
from .isolation_webhooks import WEBHOOK_SETTINGS, give_webhook

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from bos.composer.v1 import ComposeResponse
    from bos.planner.v1 import MakePlanResponse

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
"""Kept by memory, for her alone."""
_FILES = {"plan.html": ("text/html", FILE)}


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


@dataclass
class Person:
    """A user who signed in."""

    user_id: str
    username: str
    session_id: str
    access_token: str
    refresh_token: str


@dataclass
class IsolationHarness:
    """What tests call, and what they call it with."""

    channels: dict[str, grpc.aio.Channel]
    """By package of the contracts: one server has all services of a package."""
    dsn: str
    rest_url: str
    http: aiohttp.ClientSession
    private_key: Any
    run_tokens: RunTokenSigner
    """Signs run tokens as the gateway does; every service has the key that verifies them."""
    public_run_key: str = ""
    """Verifies them."""
    addresses: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, int | None] = field(default_factory=dict)
    """Ports of the services' metrics."""
    people: dict[str, Person] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    """Ada's runs: one that has ended, one that is under way, one that asked her something."""
    approval_id: str = ""
    """What a third run of hers waits for."""
    key_id: str = ""
    """An API key of hers."""
    document_id: str = ""
    chunk_id: str = ""
    """A document of hers, and a passage of it."""
    webhook_id: str = ""
    """A webhook of hers."""
    query_id: str = ""
    """A query that she has verified."""
    doomed_query_id: str = ""
    """Another one, to be deleted."""
    invitation_id: str = ""
    """An invitation that she has made: she was the first, and so administers."""

    def token(self, **changes: Any) -> str:
        """An access token of eve's, signed by identity's own key, with other claims."""
        eve = self.people["eve"]
        now = int(time.time())
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

    async def ask(self, person: Person, question: str, request_id: str) -> tuple[str, Any]:
        """Start a run; its id, and the stream that follows it."""
        stub = OrchestratorServiceStub(self.channels["bos.gateway.v1"])
        request = AgentRequest(
            question=question, request_id=request_id, conversation_id="the-conversation"
        )
        call = stub.AskStream(
            AskStreamRequest(request=request),
            timeout=120,
            metadata=(("authorization", f"Bearer {person.access_token}"),),
        )
        first = await call.read()
        return first.event.run_id, call


@asynccontextmanager
async def open_isolation_harness(
    dsn: str,
    folder: Path,
    *,
    agents: Mapping[str, str] = MappingProxyType({}),
    identity_settings: Mapping[str, Any] = MappingProxyType({}),
) -> AsyncIterator[IsolationHarness]:
    """Everything that people can call, on an empty database.

    ``agents`` are more of them, by name, with their addresses; everybody may use them.
    """
    private_pem, _ = generate_keypair()
    key_file = folder / "signing.pem"
    key_file.write_text(private_pem)
    server = ServerSettings.load(grace_s=0.2, metrics_port=0)
    telemetry = Telemetry.for_tests("harness")
    run_key, public_run_key = generate_keypair()
    data_services: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context

        async def double(servicer: object, add: Any, name: str) -> str:
            served = [Servicer(servicer, add, name)]
            plain = ServerSettings.load(grace_s=0.2)
            return (await enter(grpc_server(plain, served, telemetry=telemetry))).address

        planner = await double(
            AskingPlanner(), add_PlannerServiceServicer_to_server, "bos.planner.v1.PlannerService"
        )
        composer = await double(
            PatientComposer(),
            add_ComposerServiceServicer_to_server,
            "bos.composer.v1.ComposerService",
        )
        identity = await enter(
            serve_identity(
                IdentitySettings.load(
                    server=server,
                    auth=AuthSettings.load(run_token_public_keys=public_run_key),
                    telemetry=TelemetrySettings.load(),
                    store_url=dsn,
                    signing_key_files=[key_file],
                    key_encryption_keys=new_key_encryption_key(),
                    access_token_s=7200,
                    registration_open=True,
                    argon2_time_cost=1,
                    argon2_memory_kib=8,
                    **identity_settings,
                ),
                telemetry.named("identity"),
                account_data=lambda: data_services,
            )
        )
        people: dict[str, Any] = {
            "issuer": "bos-identity",
            "identity_target": identity.address,
            "run_token_public_keys": public_run_key,
        }
        gateway = await enter(
            serve_gateway(
                GatewaySettings.load(
                    server=server,
                    auth=AuthSettings.load(**people),
                    run_token_private_key=run_key,
                    telemetry=TelemetrySettings.load(),
                    store_url=dsn,
                    # However busy the machine is, what is under way stays so.
                    run_timeout_s=3600,
                    agent_timeout_s=3600,
                    compose_timeout_s=3600,
                    planner_target=planner,
                    composer_target=composer,
                    approval_timeout_s=86400,
                    # What ada is asked about finance may answer as well, and approvers; what they
                    # may use, and others may not, is with the agent that deploys.
                    approvers={"deploy.*": {"groups": ["finance"], "roles": ["approver"]}},
                    access=AccessSettings.load(
                        groups={"crew": {"agents": ["deploy"], "tools": ["deploy.*"]}},
                        everybody={"agents": ["echo", "drawing", *agents], "tables": {"*": ["*"]}},
                    ),
                    agent_targets={
                        "echo": await enter(agent_server(EchoAgent("echo"))),
                        "deploy": await enter(agent_server(DeployAgent())),
                        "drawing": await enter(agent_server(QueryingFileAgent("drawing", _FILES))),
                        **agents,
                    },
                    artefacts_url=(folder / "artefacts").as_uri(),
                    **WEBHOOK_SETTINGS,
                ),
                telemetry.named("gateway"),
            )
        )
        memory = await enter(
            serve_memory(
                MemorySettings.load(
                    server=server,
                    auth=AuthSettings.load(**people),
                    telemetry=TelemetrySettings.load(),
                    store_url=dsn,
                ),
                telemetry.named("memory"),
                models=None,
            )
        )
        documents = await enter(
            documents_for(
                dsn,
                folder,
                server,
                AuthSettings.load(run_token_check_target=gateway.address, **people),
                telemetry,
            )
        )
        files = await enter(
            files_for(
                dsn,
                folder,
                server,
                AuthSettings.load(run_token_check_target=gateway.address, **people),
                telemetry,
            )
        )
        served = (gateway, identity, memory, documents, files)
        data_services |= {each.service: each.address for each in served if each != identity}
        binary = find_binary(None)
        assert binary is not None, "build it first: make rest"
        rest = await enter(
            serve_rest(
                binary,
                gateway_target=gateway.address,
                identity_target=identity.address,
                memory_target=memory.address,
                documents_target=documents.address,
                files_target=files.address,
                ports=(0,),
                grace_s=0.2,
                log=telemetry.named("rest").logger("bos.rest"),
            )
        )
        at_gateway = await enter(grpc.aio.insecure_channel(gateway.address))
        at_identity = await enter(grpc.aio.insecure_channel(identity.address))
        at_memory = await enter(grpc.aio.insecure_channel(memory.address))
        at_documents = await enter(grpc.aio.insecure_channel(documents.address))
        at_files = await enter(grpc.aio.insecure_channel(files.address))
        harness = IsolationHarness(
            channels={
                "bos.gateway.v1": at_gateway,
                "bos.identity.v1": at_identity,
                "bos.memory.v1": at_memory,
                "bos.documents.v1": at_documents,
                "bos.files.v1": at_files,
                "bos.audit.v1": at_gateway,
            },
            dsn=dsn,
            rest_url=rest.url,
            http=await enter(aiohttp.ClientSession()),
            private_key=load_pem_private_key(private_pem.encode(), None),
            run_tokens=RunTokenSigner(run_key),
            public_run_key=public_run_key,
            addresses={each.service: each.address for each in served},
            metrics={each.service: each.metrics_port for each in served},
        )
        for name in ("ada", "eve"):
            harness.people[name] = await sign_in(IdentityServiceStub(at_identity), name)
        await _put_ada_into_a_group(harness)
        await give_credentials(harness, SECRET)
        await _give_ada_runs(harness, stack)
        await _give_ada_memory(harness)
        ada = harness.people["ada"]
        harness.document_id, harness.chunk_id = await give_secret(at_documents, ada, SECRET)
        await give_file(at_files, ada.access_token, FILE_NAME, f"The {SECRET} of the workspace.")
        yield harness


async def _put_ada_into_a_group(harness: IsolationHarness) -> None:
    """She may use the agent that deploys, and eve may not."""
    ada, channel = harness.people["ada"], harness.channels["bos.identity.v1"]
    await AdministrationServiceStub(channel).SetUserGroups(
        SetUserGroupsRequest(user_id=ada.user_id, groups=["crew"]),
        metadata=(("authorization", f"Bearer {ada.access_token}"),),
    )
    harness.people["ada"] = await log_in(IdentityServiceStub(channel), "ada")


async def sign_in(stub: Any, username: str) -> Person:
    """Register a user and open a session."""
    email = f"{username}@example.com"
    await stub.RegisterUser(RegisterUserRequest(username=username, email=email, password=PASSWORD))
    return await log_in(stub, username)


async def log_in(stub: Any, username: str) -> Person:
    """Open a session."""
    login = await stub.LogIn(LogInRequest(username=username, password=PASSWORD))
    return Person(
        login.user.user_id,
        username,
        login.session.session_id,
        login.tokens.access_token,
        login.tokens.refresh_token,
    )


async def _give_ada_runs(harness: IsolationHarness, stack: AsyncExitStack) -> None:
    ada = harness.people["ada"]
    ended, call = await harness.ask(ada, f"{DRAWS}: the {SECRET}?", "request-1")
    while await call.read() is not grpc.aio.EOF:
        pass
    under_way, call = await harness.ask(ada, f"{HELD}: what of the {SECRET}?", "request-2")
    stack.callback(call.cancel)
    asking, call = await harness.ask(ada, f"{UNCLEAR}: the {SECRET}", "request-4")
    while await call.read() is not grpc.aio.EOF:
        pass
    harness.runs = {"ended": ended, "under way": under_way, "asking": asking}
    _, call = await harness.ask(ada, f"{ASKS}: the {SECRET}", "request-3")
    stack.callback(call.cancel)
    event = RunEvent()
    while not event.HasField("approval_requested"):
        event = (await call.read()).event
    harness.approval_id = event.approval_requested.approval.approval_id
    of_ada = harness.channels["bos.gateway.v1"], ada.access_token
    harness.webhook_id = await give_webhook(*of_ada, SECRET)
    harness.query_id = await give_verified_query(*of_ada, ended)
    drawn, call = await harness.ask(ada, f"{DRAWS}: the {SECRET}, again", "drawn-again")
    while await call.read() is not grpc.aio.EOF:
        pass
    harness.doomed_query_id = await give_verified_query(*of_ada, drawn)


async def _give_ada_memory(harness: IsolationHarness) -> None:
    ada, channel = harness.people["ada"], harness.channels["bos.memory.v1"]
    turn = RecordTurnRequest(
        user_id=ada.user_id,
        run_id=harness.runs["ended"],
        conversation_id=CONVERSATION,
        question=f"What about the {SECRET}?",
    )
    turn.ask_time.GetCurrentTime()
    turn.answer_time.GetCurrentTime()
    token = harness.run_tokens.mint(ada.user_id, turn.run_id, "", ["memory"], 60)
    await MemoryTurnServiceStub(channel).RecordTurn(turn, metadata=((RUN_TOKEN_KEY, token),))
    update = UpdateLongTermMemoryRequest()
    update.memory.critical.user_name = SECRET
    credential = f"Bearer {ada.access_token}"
    await MemoryServiceStub(channel).UpdateLongTermMemory(
        update, metadata=(("authorization", credential),)
    )
