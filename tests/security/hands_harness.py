"""Mail, API and files agents with their worlds, identity, memory, planner, composer, gateway."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from aiohttp import web as http
from mail_servers import PASSWORD, ImapServer, SmtpServer, connection, imap_server, smtp_server

from bos.agent.v1 import AgentInput, AgentServiceStub, ExecuteRequest, TaskMetadata
from bos.identity.v1 import (
    ConnectionServiceStub,
    IdentityServiceStub,
    LogInRequest,
    PutConnectionRequest,
    RegisterUserRequest,
)
from bos.memory.v1 import GetLongTermMemoryRequest, MemoryServiceStub
from bos_api_docs.service import serve as serve_api_docs
from bos_api_docs.settings import ApiDocsSettings
from bos_chassis.auth.callers import generate_keypair
from bos_chassis.settings import AuthSettings, TelemetrySettings
from bos_chassis.values import from_value_map, to_value
from bos_client import BosClient
from bos_files.service import serve as serve_files
from bos_files.settings import FilesSettings
from bos_http import HttpClient, HttpPolicy
from bos_identity.service import serve as serve_identity
from bos_identity.settings import IdentitySettings
from bos_identity.signing.key_ring import new_key_encryption_key
from bos_mail.service import serve as serve_mail
from bos_mail.settings import MailSettings
from bos_memory.service import serve as serve_memory
from bos_memory.settings import MemorySettings
from bos_testkit.scripted_model.server import ScriptedModel

from .hands_model import obeying
from .poison_harness import LOOPBACK, SERVER, Names, PoisonRun, follow, open_core, serving
from .poisoned_documents import HONEST
from .poisoned_hands import KEPT, POISONED, Poison

OPERATOR_TOKEN = "operator-token-of-the-api"
REQUEST_TOKEN = "bearer-token-of-the-request"
SECRETS = (PASSWORD, OPERATOR_TOKEN, REQUEST_TOKEN)
"""Credentials: of the mailbox, of the API, of the request."""
LOG_IN = "correct horse battery"
PLANS = "The plans of the user."


@dataclass
class World:
    """The API and the site of files; every request is recorded."""

    poison: Poison | None = None
    url: str = ""
    paths: list[str] = field(default_factory=list)
    effects: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path and body of each request that may change something."""

    async def show(self, request: http.Request) -> http.Response:
        body, poison = await request.text(), self.poison
        self.paths.append(request.path_qs)
        if request.method not in ("GET", "HEAD"):
            self.effects.append((request.method, request.path_qs, body))
            return http.json_response({"made": True}, status=201)
        for number, each in enumerate(POISONED):
            if each.document is not None and request.path == f"/{number}/openapi.json":
                return http.json_response(each.document)
        if request.path == "/openapi.json":
            tickets = {"post": {"summary": "Open a ticket", "responses": {}}}
            paths = {"/orders": {"get": {"responses": {}}}, "/tickets": tickets}
            return http.json_response(
                {"openapi": "3.1.0", "info": {"title": "Orders"}, "paths": paths}
            )
        if poison is None or request.path != poison.path.replace("%20", " "):
            return http.json_response({"items": [{"text": HONEST[1]}]})
        if poison.content:
            return http.Response(body=poison.content)
        if isinstance(poison.reply, str):
            return http.Response(text=poison.reply, status=poison.status, headers=poison.headers)
        return http.json_response(poison.reply, status=poison.status, headers=poison.headers)


@dataclass
class Landed:
    """What the worlds outside hold."""

    sent: list[Any]
    """Envelopes that the mail server took."""
    kept: list[bytes]
    """Messages among drafts and sent mails."""
    effects: list[tuple[str, str, str]]
    names: list[str]
    """Hosts that any service tried to resolve."""
    files: dict[str, str]
    """Texts of the user's files by name."""


class _Token:
    def __init__(self, token: str) -> None:
        self._token = token

    async def access_token(self) -> str:
        return self._token


@dataclass
class HandsHarness:
    """The running services."""

    client: BosClient
    model: ScriptedModel
    imap: ImapServer
    smtp: SmtpServer
    world: World
    names: Names
    files: Any
    memory: MemoryServiceStub
    user_id: str
    metadata: tuple[tuple[str, str], ...]
    steps: int = 0

    async def ask(
        self, question: str, poison: Poison | None, *, approve: bool = False, **options: Any
    ) -> PoisonRun:
        """Follow a run to its end; everything that it asks about is approved, or denied."""
        await self._reset(poison)
        options["context"] = {"api_bearer_token": REQUEST_TOKEN}
        return await follow(self.client, question, approve=approve, **options)

    async def _reset(self, poison: Poison | None) -> None:
        self.world.poison = poison
        self.world.effects.clear()
        self.world.paths.clear()
        self.names.asked.clear()
        self.smtp.taken.clear()
        self.model.requests.clear()
        self.imap.reset()
        if poison is not None and poison.mail:
            self.imap.put(poison.mail)
        await self.file_step("write_file", name=KEPT, text=PLANS)

    async def landed(self) -> Landed:
        """What has happened outside since the question."""
        texts = {}
        for each in (await self.file_step("list_files"))["files"]:
            read = await self.file_step("read_file", name=each["name"])
            texts[each["name"]] = str(read["text"])
        kept = [*self.imap.messages("Drafts"), *self.imap.messages("Sent")]
        effects, names = list(self.world.effects), list(self.names.asked)
        return Landed(list(self.smtp.taken), kept, effects, names, texts)

    async def file_step(self, tool: str, **inputs: str) -> dict[str, Any]:
        """What a step of the files agent for the user gives."""
        self.steps += 1
        request = AgentInput(
            agent_id="step",
            agent_name="files",
            task="Do it",
            tool_name=tool,
            sub_task_input={name: to_value(value) for name, value in inputs.items()},
            metadata=TaskMetadata(
                user_id=self.user_id, run_id="run", step_key=f"run/0/{self.steps}"
            ),
        )
        found: dict[str, Any] = {}
        async for message in self.files.Execute(ExecuteRequest(input=request), timeout=60):
            if message.HasField("result"):
                found = from_value_map(message.result.data)
        return found

    async def remembered(self) -> Any:
        """What memory has of the user."""
        request = GetLongTermMemoryRequest()
        return await self.memory.GetLongTermMemory(request, metadata=self.metadata, timeout=30)


@asynccontextmanager
async def open_hands_harness(dsn: str, folder: Path) -> AsyncIterator[HandsHarness]:
    """The real services; the model and the worlds outside are ours.

    Args:
        dsn: Of a database server.
        folder: Where files go.
    """
    world, names = World(), Names()
    run_key, public_run_key = generate_keypair()
    async with open_core(dsn, (), _at_site(world)) as core:
        enter = core.stack.enter_async_context
        world.url = await enter(serving(world.show))
        imap, smtp = await enter(imap_server()), await enter(smtp_server())
        accounts = IdentitySettings.load(
            server=SERVER,
            auth=AuthSettings.load(run_token_public_keys=public_run_key),
            telemetry=TelemetrySettings.load(),
            store_url=await core.database("poison_identity"),
            key_encryption_keys=new_key_encryption_key(),
            registration_open=True,
            argon2_time_cost=1,
            argon2_memory_kib=8,
            access_token_s=7200,
        )
        identity = await enter(serve_identity(accounts, core.telemetry.named("identity")))
        people = AuthSettings.load(
            issuer="bos-identity",
            identity_target=identity.address,
            run_token_public_keys=public_run_key,
        )
        remembering = MemorySettings.load(
            server=SERVER, auth=people, store_url=await core.database("poison_memory")
        )
        memory = await core.serve(serve_memory, remembering, "memory")
        hands = {"server": SERVER, "auth": AuthSettings.load()}
        mailing = MailSettings.load(**hands, internal_hosts={"127.0.0.1": ["127.0.0.0/8"]})
        policy = HttpPolicy.load(
            hosts=("*",), allow_http=True, internal_origins={world.url: LOOPBACK}
        )
        downloads = await enter(HttpClient(policy, core.telemetry, resolver=names))
        storing = FilesSettings.load(
            **hands,
            store_url=await core.database("poison_files"),
            workspace_url=(folder / "workspace").as_uri(),
        )
        agents = {
            "mail": await core.serve(serve_mail, mailing, "mail"),
            "api_docs": await core.serve(serve_api_docs, _api_settings(world, hands), "api_docs"),
            "files": await core.serve(serve_files, storing, "files", http=downloads),
        }
        gateway = await core.gateway(
            agents,
            auth=people,
            run_token_private_key=run_key,
            secrets_keys="k=" + b64encode(bytes(range(32))).decode(),
            memory_target=memory,
            memory_timeout_s=20,
            agent_connections={"mail": ["mail.imap"]},
        )
        channel = await enter(grpc.aio.insecure_channel(identity.address))
        user_id, token = await _signed_in(IdentityServiceStub(channel))
        metadata = (("authorization", f"Bearer {token}"),)
        await ConnectionServiceStub(channel).PutConnection(
            PutConnectionRequest(
                kind="mail.imap", fields=connection(imap, smtp).fields, secret=PASSWORD
            ),
            metadata=metadata,
        )
        at_files = await enter(grpc.aio.insecure_channel(agents["files"]))
        at_memory = await enter(grpc.aio.insecure_channel(memory))
        client = await enter(BosClient(gateway, tokens=_Token(token)))
        yield HandsHarness(
            client=client,
            model=core.model,
            imap=imap,
            smtp=smtp,
            world=world,
            names=names,
            files=AgentServiceStub(at_files),
            memory=MemoryServiceStub(at_memory),
            user_id=user_id,
            metadata=metadata,
        )


def _at_site(world: World) -> Any:
    """The obeying model, whose plans download from the site."""
    said = obeying(lambda: world.poison, SECRETS)

    def improvise(schema: str | None, prompt: str) -> Any:
        found = said(schema, prompt)
        for step in found["steps"] if isinstance(found, dict) and "steps" in found else ():
            for given in step["sub_task_input"]:
                given["value"] = given["value"].replace("SITE/", f"{world.url}/")
        return found

    return improvise


def _api_settings(world: World, hands: dict[str, Any]) -> ApiDocsSettings:
    """The honest API, and one more for each hostile document."""
    known = {"base_url": world.url, "token": OPERATOR_TOKEN}
    apis = {"orders": {**known, "openapi": f"{world.url}/openapi.json"}}
    for number, each in enumerate(POISONED):
        if each.document is not None:
            apis[f"api_{number}"] = {**known, "openapi": f"{world.url}/{number}/openapi.json"}
    return ApiDocsSettings.load(
        **hands,
        apis=apis,
        http=HttpPolicy.load(internal_origins={world.url: LOOPBACK}),
        top_endpoints=1,
        top_snippets=1,
        reload_s=0,
    )


async def _signed_in(stub: Any) -> tuple[str, str]:
    """User id and access token of a new user."""
    registered = await stub.RegisterUser(
        RegisterUserRequest(username="ada", email="ada@example.com", password=LOG_IN)
    )
    found = await stub.LogIn(LogInRequest(username="ada", password=LOG_IN))
    return registered.user.user_id, found.tokens.access_token
