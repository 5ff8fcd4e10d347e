"""Agents that fetch from hosts which others name, as services in a small internet."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from bos.agent.v1 import (
    AgentInput,
    AgentResult,
    AgentServiceStub,
    ConnectionInput,
    ExecuteRequest,
    TaskMetadata,
)
from bos_api_docs.service import serve as serve_api_docs
from bos_api_docs.settings import ApiDocsSettings
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value
from bos_files.service import serve as serve_files
from bos_files.settings import DownloadPolicy, FilesSettings
from bos_http import HttpPolicy
from bos_mail.service import serve as serve_mail
from bos_mail.settings import MailSettings
from bos_postgres import create_database
from bos_testkit.internet.bodies import LIMIT
from bos_testkit.internet.world import Internet, Request, Site, answer, ok, wired
from bos_web.service import serve as serve_web
from bos_web.settings import WebSettings

HOST = "site.example"
OTHER_HOST, OTHER = "other.example", "151.101.1.69"
FETCHERS = ("web", "files", "api_docs")
"""Agents that fetch an address which a step names."""
SECRETS = {
    "operator": "token-of-the-operator",
    "request": "token-of-the-request",
    "key": "key-in-a-header",
}
GMAIL = {
    "client_id": "id-of-the-client",
    "client_secret": "secret-of-the-client",
    "refresh_token": "refresh-token-of-ada",
}


@dataclass
class Fetching:
    """The agents, and the internet that they are in."""

    internet: Internet
    site: Site
    """At HOST."""
    other: Site
    """At OTHER_HOST."""
    canary: Site
    """At loopback, which no agent may reach."""
    stubs: dict[str, Any]
    stack: AsyncExitStack
    steps: int = 0
    reply: Callable[[Request], Any] = lambda _: ok()

    async def fetch(self, agent: str, url: str) -> AgentResult:
        """Have the agent fetch ``url``."""
        if agent == "web":
            return await self.do("web", "fetch_url", url=url)
        if agent == "files":
            return await self.do("files", "download_file", url=url, name="fetched.txt")
        base, path = (url, "/x")
        if url.startswith(f"http://{HOST}/"):  # an API has its base URL, and a path below it
            base, path = f"http://{HOST}", url.removeprefix(f"http://{HOST}")
        return await self.do("api_docs", "call_api_read", {"api_base_url": base}, path=path)

    async def do(
        self, agent: str, tool: str, context: dict[str, Any] | None = None, **inputs: str
    ) -> AgentResult:
        """Execute a step."""
        self.steps += 1
        request = AgentInput(
            agent_id="step",
            agent_name="web" if agent == "searching" else agent,
            task="Do it",
            tool_name=tool,
            tools=[tool],
            sub_task_input={name: to_value(value) for name, value in inputs.items()},
            metadata=TaskMetadata(user_id="ada", run_id="run", step_key=f"run/0/{self.steps}"),
        )
        request.context.update(context or {})
        if agent == "api_docs":
            request.secrets["api_bearer_token"] = SECRETS["request"]
            request.secrets["api_headers"] = json.dumps({"X-Api-Key": SECRETS["key"]})
        return await self.execute(agent, request)

    async def open_mailbox(self, **fields: str) -> AgentResult:
        """Search a mailbox at the host that a connection names."""
        given = {"user": "ada@example.com", "imap_host": HOST, "smtp_host": HOST, **fields}
        connection = ConnectionInput(kind="mail.imap", label="Work", fields=given)
        return await self._search("mail", connection, "app-password")

    async def search_gmail(self) -> AgentResult:
        """Search a mailbox of Gmail."""
        connection = ConnectionInput(kind="mail.gmail", fields={"address": "a@b.example"})
        return await self._search("gmail", connection, json.dumps(GMAIL))

    async def _search(self, agent: str, connection: ConnectionInput, secret: str) -> AgentResult:
        request = AgentInput(
            agent_id="step",
            agent_name="mail",
            task="Look",
            tool_name="search_messages",
            tools=["search_messages"],
            sub_task_input={"query": to_value("")},
            connections=[connection],
            secrets={connection.kind: secret},
        )
        return await self.execute(agent, request)

    async def execute(self, agent: str, request: AgentInput) -> AgentResult:
        """The result of a step."""
        result = AgentResult()
        stub = self.stubs[agent]
        async for message in stub.Execute(ExecuteRequest(input=request), timeout=60):
            if message.HasField("result"):
                result = message.result
        return result

    async def started(self, name: str, serve: Any, settings: Any) -> None:
        """Put another agent in the place of this name."""
        server = serve(settings, Telemetry.for_tests(name), models=None)
        at = (await self.stack.enter_async_context(server)).address
        channel = await self.stack.enter_async_context(grpc.aio.insecure_channel(at))
        self.stubs[name] = AgentServiceStub(channel)

    async def documented(self, **apis: dict[str, Any]) -> None:
        """Put another API agent, which reads these APIs' documents, in the place of the first."""
        settings = ApiDocsSettings.load(**_common(), apis=apis, http=_policy(), reload_s=0)
        await self.started("api_docs", serve_api_docs, settings)

    async def searching(self) -> None:
        """Put a web agent beside the first, whose search API is the site."""
        settings = WebSettings.load(
            **_web(),
            search_provider="tavily",
            search_url=f"http://127.0.0.1:{self.site.port}/search",
            search_key=SECRETS["operator"],
            search_networks=["127.0.0.0/8"],
        )
        await self.started("searching", serve_web, settings)

    async def with_gmail(self) -> None:
        """Put a mail agent beside the first, whose Gmail API is the site."""
        api = f"http://127.0.0.1:{self.site.port}"
        settings = MailSettings.load(
            **_common(),
            gmail_api_url=api,
            gmail_token_url=f"{api}/token",
            http=HttpPolicy.load(internal_origins={api: ["127.0.0.0/8"]}),
        )
        await self.started("gmail", serve_mail, settings)

    def reached_inside(self) -> list[Any]:
        """Connections to anything but the sites, and what stands on loopback for this test."""
        inside = [each for each in self.internet.dialled if each[0] not in _OURS]
        return [*inside, *self.canary.requests] or ([None] * self.canary.connections)


_OURS = ("93.184.215.14", OTHER, "127.0.0.1")


def _common() -> dict[str, Any]:
    return {"server": ServerSettings(reflection=False, grace_s=0.2), "auth": AuthSettings.load()}


def _web() -> dict[str, Any]:
    pages = {"site_hosts": ("*",), "plain_http": True, "robots_txt": False, "host_interval_s": 0}
    return {**_common(), **pages, "max_page_bytes": LIMIT}


def _policy(**changes: Any) -> HttpPolicy:
    given = {"hosts": ("*",), "allow_http": True, "max_response_bytes": LIMIT, **changes}
    return HttpPolicy.load(**given)


@asynccontextmanager
async def open_fetching(dsn: str, folder: Path) -> AsyncIterator[Fetching]:
    """All agents that fetch, which may call any public host."""
    internet = Internet()
    async with wired(internet, system=True), AsyncExitStack() as stack:
        site = await internet.serve(lambda request: found.reply(request), names=[HOST])
        other = await internet.serve(address=OTHER, names=[OTHER_HOST])
        canary = await internet.serve(address="127.0.0.1")
        for port in (443, 993, 465):
            internet.routes["127.0.0.1", port] = canary.port
        policy = DownloadPolicy.load(hosts=("*",), allow_http=True, max_response_bytes=LIMIT)
        files = FilesSettings.load(
            **_common(),
            http=policy,
            store_url=await create_database(dsn, "fetching_files"),
            workspace_url=(folder / "workspace").as_uri(),
        )
        apis = {"orders": {"base_url": f"http://{HOST}", "token": SECRETS["operator"]}}
        api = ApiDocsSettings.load(**_common(), apis=apis, http=_policy(), reload_s=0)
        found = Fetching(internet, site, other, canary, {}, stack)
        mail = MailSettings.load(**_common(), command_timeout_s=5)
        await found.started("web", serve_web, WebSettings.load(**_web()))
        await found.started("files", serve_files, files)
        await found.started("api_docs", serve_api_docs, api)
        await found.started("mail", serve_mail, mail)
        yield found


def moved(location: str) -> bytes:
    """A redirect."""
    return answer("302 Found", Location=location, Connection="close")
