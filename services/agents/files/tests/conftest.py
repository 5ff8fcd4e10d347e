"""A files service on a fresh database, its callers as people and as steps, and a small internet."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bos.agent.v1 import (
    AgentInput,
    AgentResult,
    AgentServiceStub,
    ApprovalContext,
    ExecuteRequest,
    TaskMetadata,
)
from bos.files.v1 import (
    DeleteFileRequest,
    DownloadFileRequest,
    FileServiceStub,
    FileUpload,
    GetFileRequest,
    ListFilesRequest,
    UploadFileRequest,
)
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map, to_value, to_value_map
from bos_files.service import SCHEMA, migrate_store, serve
from bos_files.settings import FilesSettings
from bos_http import HttpClient, HttpPolicy
from bos_llm import Models
from bos_postgres import connect
from bos_testkit.postgres import migrated_template
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from bos.agent.v1 import ProposedAction
    from bos_testkit.postgres import PostgresServer
    from bos_testkit.scripted_model.replies import Fixture

ADA_KEY = "the-key-of-ada-0123"


@dataclass
class Outcome:
    """Outcome of one step."""

    result: AgentResult
    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    @property
    def data(self) -> dict[str, Any]:
        return from_value_map(self.result.data)

    @property
    def action(self) -> ProposedAction:
        (action,) = self.result.proposed_actions
        return action


@dataclass
class Files:
    """A real service, called as a person and as steps of runs."""

    files: Any
    agent: Any
    model: ScriptedModel
    dsn: str
    folder: Path
    address: str
    key: str = ""
    steps: int = 0

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.key}"),) if self.key else ()

    async def do(
        self,
        task: str = "Do it",
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Mapping[str, Any]] | None = None,
        approved: ProposedAction | None = None,
        step_key: str = "",
        user: str = "local",
        **more: Any,
    ) -> Outcome:
        """Execute one step; with ``approved``, the execution after the approval."""
        self.steps += 1
        request = AgentInput(
            agent_id="step_1",
            agent_name="files",
            task=task,
            sub_task_input={name: to_value(value) for name, value in (inputs or {}).items()},
            dependency_outputs={k: to_value_map(v) for k, v in (outputs or {}).items()},
            metadata=TaskMetadata(
                user_id=user, run_id="run-1", step_key=step_key or f"run-1/0/{self.steps}"
            ),
            **more,
        )
        if approved is not None:
            request.approval_context.CopyFrom(
                ApprovalContext(approval_id="a1", approved_actions=[approved])
            )
        outcome, name = Outcome(AgentResult()), ""
        async for message in self.agent.Execute(ExecuteRequest(input=request), timeout=60):
            match message.WhichOneof("payload"):
                case "result":
                    outcome.result = message.result
                case "file":
                    name = message.file.name or name
                    kind, content = outcome.files.get(name, (message.file.media_type, b""))
                    outcome.files[name] = (kind, content + message.file.content)
        return outcome

    async def call(self, method: str, request: Any) -> Any:
        with translate_rpc_errors():
            return await getattr(self.files, method)(request, metadata=self.metadata, timeout=60)

    async def upload(self, name: str, content: bytes, piece: int = 64 * 1024) -> Any:
        parts = [UploadFileRequest(upload=FileUpload(name=name))]
        parts += [
            UploadFileRequest(content=content[start : start + piece])
            for start in range(0, len(content), piece)
        ]
        with translate_rpc_errors():
            return await self.files.UploadFile(iter(parts), metadata=self.metadata, timeout=60)

    async def listed(self) -> list[Any]:
        return list((await self.call("ListFiles", ListFilesRequest(page_size=200))).files)

    async def get(self, name: str) -> Any:
        return (await self.call("GetFile", GetFileRequest(name=name))).file

    async def delete(self, name: str) -> None:
        await self.call("DeleteFile", DeleteFileRequest(name=name))

    async def download(self, name: str, version: int = 0) -> bytes:
        request = DownloadFileRequest(name=name, version=version)
        with translate_rpc_errors():
            call = self.files.DownloadFile(request, metadata=self.metadata, timeout=60)
            return b"".join([part.content async for part in call])

    async def rows(self, query: str) -> list[Any]:
        async with connect(self.dsn, schema=SCHEMA) as session:
            return list(await session.fetch(query))

    def blobs(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


class Names:
    """A resolver with a table; every public name of the tests is one address."""

    def __init__(self) -> None:
        self.table: dict[str, list[str]] = {}

    async def resolve(self, host: str, port: int) -> list[str]:
        if host not in self.table:
            raise OSError("no such name")
        return self.table[host]


@dataclass
class Site:
    """A server of the internet that answers every request with the same bytes."""

    answers: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split(" ")[1]
            self.requests.append(path)
            missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
            writer.write(self.answers.get(path, missing))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def ok(body: bytes, **headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass
class Internet:
    """One site, found as files.example.com and by whatever the tests name."""

    names: Names
    site: Site
    port: int
    dialled: list[tuple[str, int]]


@pytest.fixture
async def internet(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Internet]:
    loop: Any = asyncio.get_running_loop()
    really = loop.sock_connect
    site, names, dialled = Site(), Names(), []
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    names.table["files.example.com"] = ["93.184.215.14"]

    async def wire(sock: Any, address: Any) -> None:
        if address[0] == "93.184.215.14":
            dialled.append((address[0], address[1]))
            address = ("127.0.0.1", port)
        await really(sock, address)

    monkeypatch.setattr(loop, "sock_connect", wire)
    async with server:
        yield Internet(names, site, port, dialled)
        server.close()


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The tables of workspaces, migrated once and copied for each test."""
    return migrated_template(postgres_server, "files_template", migrate_store)


@pytest.fixture
async def stack(postgres_dsn: str) -> AsyncIterator[AsyncExitStack]:
    """Ends before the database, which it depends on, is dropped."""
    async with AsyncExitStack() as stack:
        yield stack


def files_settings(dsn: str, folder: Path, **changes: Any) -> FilesSettings:
    return FilesSettings.load(
        **{
            "server": ServerSettings(reflection=False, grace_s=1),
            "auth": AuthSettings.load(),
            "store_url": dsn,
            "workspace_url": (folder / "workspace").as_uri(),
            **changes,
        }
    )


@pytest.fixture
def start(stack: AsyncExitStack, postgres_dsn: str, tmp_path: Path) -> Any:
    """Start the service with fixtures of the scripted model."""

    async def start(
        *fixtures: Fixture,
        models: bool = True,
        internet: Internet | None = None,
        policy: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Files:
        telemetry = Telemetry.for_tests("files")
        scripted = await stack.enter_async_context(ScriptedModel(fixtures))
        access = model_settings(scripted, max_attempts=1)
        shared = await stack.enter_async_context(Models(access, telemetry)) if models else None
        loaded = files_settings(postgres_dsn, tmp_path, **settings)
        http = None
        if internet is not None:
            allowed = {"hosts": ("files.example.com",), "allow_http": True, **(policy or {})}
            http = await stack.enter_async_context(
                HttpClient(HttpPolicy.load(**allowed), telemetry, resolver=internet.names)
            )
        server = await stack.enter_async_context(serve(loaded, telemetry, models=shared, http=http))
        channel = await stack.enter_async_context(
            grpc.aio.insecure_channel(
                server.address, options=[("grpc.max_receive_message_length", 8 * 1024 * 1024)]
            )
        )
        return Files(
            FileServiceStub(channel),
            AgentServiceStub(channel),
            scripted,
            postgres_dsn,
            tmp_path / "workspace",
            server.address,
        )

    return start
