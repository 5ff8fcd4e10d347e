"""Chains of real agents, every service a process of its own, around one scripted model.

Documents are uploaded and read, the public site is searched, programs run in the sandbox, mails go
over SMTP; only the model and the outside (site, mail server) are this test's own.
"""

from __future__ import annotations

import asyncio
import email
import json
import secrets
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from email import policy
from pathlib import Path
from typing import Any

import grpc
from mail_servers import PASSWORD, ImapServer, SmtpServer, connection, imap_server, smtp_server

from bos.gateway.v1 import Approval, RunEvent
from bos_chassis.auth.callers import generate_keypair
from bos_chassis.values import from_value_map
from bos_client import BosClient
from bos_client.user_connections import ConnectionClient
from bos_demo.company import DEFAULT_TODAY
from bos_demo.website.service import Website, serve_website
from bos_errors import Unavailable
from bos_identity.accounts import LOCAL_USER_ID
from bos_testkit.runs import SeenRun
from bos_testkit.scripted_model.server import ScriptedModel

from .chain_replies import CHAINS, DOCUMENT, replies
from .effects_trial.respawning import Respawning, running
from .library import upload_source

Seen = Callable[[RunEvent], Awaitable[None]]
"""Called with each event as it comes."""


_KEY = "a-key-of-the-chains"
_ISSUER = "https://identity.test"
_LONGEST_RUN_S = 240.0
_AGENTS = ("rag", "web", "code", "mail")


class ChainRun(SeenRun):
    """One run of a chain, and the approvals that it asked for."""

    def __init__(self, events: list[RunEvent], approvals: list[Approval]) -> None:
        super().__init__(events)
        object.__setattr__(self, "approvals", approvals)

    approvals: list[Approval]

    @property
    def cited(self) -> list[tuple[str, str]]:
        """Title and quoted words of the answer's sources."""
        return [(each.title, each.excerpt) for each in self.response.sources]

    def shown(self, tool: str) -> dict[str, Any]:
        """Arguments that the approval of ``tool`` showed, the last one."""
        actions = [action for each in self.approvals for action in each.actions]
        return from_value_map([each for each in actions if each.tool == tool][-1].arguments)


@dataclass
class Chains:
    """The running services."""

    services: dict[str, Respawning]
    model: ScriptedModel
    smtp: SmtpServer
    bos: BosClient = field(default_factory=lambda: BosClient(""))

    async def ask(self, name: str, seen: Seen | None = None) -> ChainRun:
        """Ask the question of a chain, and approve what it asks for."""
        events: list[RunEvent] = []
        approvals: list[Approval] = []
        async with (
            asyncio.timeout(_LONGEST_RUN_S),
            aclosing(self.bos.ask_stream(CHAINS[name].question)) as stream,
        ):
            async for event in stream:
                events.append(event)
                if seen is not None:
                    await seen(event)
                if event.HasField("approval_requested"):
                    approvals.append(event.approval_requested.approval)
                    await self._approve(approvals[-1].approval_id)
        return ChainRun(events, approvals)

    async def _approve(self, approval_id: str) -> None:
        """Approve, as a user does who tries again until an answer comes."""
        while True:
            try:
                await self.bos.approve(approval_id)
            except Unavailable:
                await asyncio.sleep(0.2)
            else:
                return

    async def ready(self) -> None:
        """Wait until every gateway knows that every agent answers."""
        for name, service in self.services.items():
            if not name.startswith("gateway"):
                continue
            async with asyncio.timeout(60), BosClient(service.address, api_key=_KEY) as bos:
                while True:
                    answering = {each.card.name for each in await bos.agents() if each.available}
                    if answering == {*_AGENTS}:
                        break
                    await asyncio.sleep(0.1)

    def mails(self) -> list[dict[str, bytes]]:
        """Attachments by name of every mail that was sent, oldest first."""
        return [
            {
                str(part.get_filename()): bytes(part.get_payload(decode=True))
                for part in email.message_from_bytes(
                    each.content, policy=policy.default
                ).iter_attachments()
            }
            for each in self.smtp.taken
        ]


@asynccontextmanager
async def open_chains(dsn: str, folder: Path, *, gateways: int = 1) -> AsyncIterator[Chains]:
    """Every service, with the document uploaded and the mailbox connected.

    Args:
        dsn: Empty database of all services.
        folder: Where their files and logs go.
        gateways: Replicas of the gateway.
    """
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        site = await enter(serve_website(DEFAULT_TODAY))
        model = await enter(ScriptedModel(replies()))
        imap, smtp = await enter(imap_server()), await enter(smtp_server())
        services = _services(dsn, folder, model, site, gateways)
        await enter(running(*services.values()))
        made = Chains(services, model, smtp)
        await _connect(services["identity"].address, imap, smtp)
        async with grpc.aio.insecure_channel(services["documents"].address) as channel:
            await upload_source(channel, DOCUMENT, authorization=f"Bearer {_KEY}")
        targets = [each.address for name, each in services.items() if name.startswith("gateway")]
        made.bos = await enter(BosClient(f"ipv4:{','.join(targets)}", api_key=_KEY))
        await made.ready()
        yield made


def _services(
    dsn: str, folder: Path, model: ScriptedModel, site: Website, gateways: int
) -> dict[str, Respawning]:
    """All services, none of them started."""
    private, public = generate_keypair()
    signing = folder / "signing.pem"
    signing.write_text(generate_keypair()[0])
    inside = {"BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS": public, "BOS_SERVER_GRACE_S": "0.2"}
    people = {
        **inside,
        "BOS_AUTH_STATIC_KEY": _KEY,
        "BOS_AUTH_STATIC_KEY_USER": str(LOCAL_USER_ID),
    }
    asking = {
        **inside,
        "OPENAI_BASE_URL": model.base_url,
        "OPENAI_API_KEY": "sk-scripted-0123456789abcdef",
        "BOS_MODEL": "scripted",
    }
    found: dict[str, Respawning] = {}

    def add(name: str, given: dict[str, str], **own: str) -> str:
        module = f"bos_{name.partition('-')[0]}"
        settings = {**given, **{f"{module.upper()}_{key}": value for key, value in own.items()}}
        found[name] = Respawning(module, settings, folder / f"{name}.log")
        return found[name].address

    networks = [str(each) for each in site.networks]
    identity = add(
        "identity",
        people,
        STORE_URL=dsn,
        ISSUER=_ISSUER,
        KEY_ENCRYPTION_KEYS=urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        SIGNING_KEY_FILES=json.dumps([str(signing)]),
    )
    known = {**people, "BOS_AUTH_IDENTITY_TARGET": identity, "BOS_AUTH_ISSUER": _ISSUER}
    documents = add(
        "documents",
        known,
        STORE_URL=dsn,
        FILES_URL=(folder / "files").as_uri(),
        INDEX_FOLDER=str(folder / "index"),
        SPOOL_FOLDER=str(folder / "spool"),
    )
    sandbox = add("sandbox", inside)
    planner, composer = add("planner", asking), add("composer", asking)
    add("rag", asking, DOCUMENTS_TARGET=documents)
    add(
        "web",
        asking,
        SEARCH_PROVIDER="tavily",
        SEARCH_URL=site.search_url,
        SEARCH_KEY=site.search_key.get_secret_value(),
        SEARCH_NETWORKS=json.dumps(networks),
        SITE_ORIGINS=json.dumps({site.site: networks}),
        HOST_INTERVAL_S="0",
    )
    add("code", asking, SANDBOX_TARGET=sandbox)
    add("mail", asking, INTERNAL_HOSTS=json.dumps({"127.0.0.1": ["127.0.0.0/8"]}))
    for number in range(gateways):
        add(
            f"gateway-{number}",
            known,
            STORE_URL=dsn,
            RUN_TOKEN_PRIVATE_KEY=private,
            PLANNER_TARGET=planner,
            COMPOSER_TARGET=composer,
            AGENT_TARGETS=",".join(f"{name}={found[name].address}" for name in _AGENTS),
            AGENT_AUDIENCES=json.dumps({"rag": ["documents"], "code": ["sandbox"]}),
            AGENT_CONNECTIONS=json.dumps({"mail": ["mail.imap"]}),
            ARTEFACTS_URL=(folder / "artefacts").as_uri(),
            DESCRIBE_INTERVAL_S="1",
            # A process that was killed is back in time, however busy the machine is.
            RESTART_WAIT_S="200",
        )
    return found


async def _connect(identity: str, imap: ImapServer, smtp: SmtpServer) -> None:
    """Have the user's mailbox connected."""
    async with ConnectionClient(identity, api_key=_KEY) as client:
        await client.connect("mail.imap", PASSWORD, connection(imap, smtp).fields)
