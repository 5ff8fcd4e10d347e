"""A documents service on a fresh database, with stand-ins for its engines, and its callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
from documents_doubles import engines

from bos.documents.v1 import (
    DeleteDocumentRequest,
    Document,
    DocumentsServiceStub,
    DocumentState,
    DocumentUpload,
    GetChunkRequest,
    GetDocumentRequest,
    ListDocumentsRequest,
    ReindexDocumentRequest,
    SearchDocumentsRequest,
    SearchDocumentsResponse,
    UploadDocumentRequest,
    WatchDocumentRequest,
)
from bos_chassis.auth.callers import RUN_TOKEN_KEY, RunTokenSigner, generate_keypair
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.settings import AuthSettings, ServerSettings, TelemetrySettings
from bos_chassis.telemetry import Telemetry
from bos_documents.ports import Engines
from bos_documents.service import SCHEMA, serve
from bos_documents.settings import DocumentsSettings
from bos_llm import Models
from bos_postgres import connect
from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory, model_settings
from bos_testkit.scripted_model.replies import Fixture

ADA_KEY = "the-key-of-ada-0123"
PRIVATE_KEY, PUBLIC_KEY = generate_keypair()
READY = DocumentState.DOCUMENT_STATE_READY
FAILED = DocumentState.DOCUMENT_STATE_FAILED
TEXT = "# Terms\nDelivery within five days.\nPenalty is two percent.\f# Prices\nApples cost INV-7."
_PART = 64 * 1024


@dataclass
class Caller:
    """Calls one server: as a person by a key, or as a run of a user."""

    stub: Any
    engines: Any
    telemetry: Telemetry
    dsn: str
    folder: Path
    key: str = ""
    token: str = ""
    address: str = ""
    channel: Any = None

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        if self.token:
            return ((RUN_TOKEN_KEY, self.token),)
        return (("authorization", f"Bearer {self.key}"),) if self.key else ()

    def as_run(self, user: str, audiences: Sequence[str] = ("rag", "documents")) -> Caller:
        token = run_token(user, audiences)
        return replace(self, token=token)

    async def call(self, method: str, request: Any) -> Any:
        with translate_rpc_errors():
            return await getattr(self.stub, method)(request, metadata=self.metadata, timeout=60)

    async def upload_parts(self, parts: Any) -> Any:
        with translate_rpc_errors():
            return await self.stub.UploadDocument(parts, metadata=self.metadata, timeout=60)

    async def upload(self, text: str | bytes = TEXT, name: str = "a.txt", **about: str) -> Any:
        content = text.encode() if isinstance(text, str) else text
        return await self.upload_parts(parts_of(content, name, **about))

    async def get(self, document_id: str) -> Document:
        request = GetDocumentRequest(document_id=document_id)
        return (await self.call("GetDocument", request)).document

    async def documents(self) -> list[Document]:
        response = await self.call("ListDocuments", ListDocumentsRequest(page_size=200))
        return list(response.documents)

    async def delete(self, document_id: str) -> None:
        await self.call("DeleteDocument", DeleteDocumentRequest(document_id=document_id))

    async def reindex(self, document_id: str) -> Document:
        request = ReindexDocumentRequest(document_id=document_id)
        return (await self.call("ReindexDocument", request)).document

    async def chunk(self, chunk_id: str, before: int = 0, after: int = 0) -> Any:
        request = GetChunkRequest(chunk_id=chunk_id, before=before, after=after)
        return await self.call("GetChunk", request)

    async def search(self, query: str, **more: Any) -> SearchDocumentsResponse:
        return await self.call("SearchDocuments", SearchDocumentsRequest(query=query, **more))

    async def texts(self, query: str, **more: Any) -> list[str]:
        return [each.chunk.text for each in (await self.search(query, **more)).passages]

    async def watch(self, document_id: str) -> AsyncIterator[Document]:
        request = WatchDocumentRequest(document_id=document_id)
        call = self.stub.WatchDocument(request, metadata=self.metadata, timeout=100)
        with translate_rpc_errors():
            async for each in call:
                yield each.document

    async def until_ended(self, document_id: str) -> Document:
        """The document once it is ready or failed."""
        found = await self.get(document_id)
        while found.state not in (READY, FAILED):
            async for each in self.watch(document_id):
                found = each
        return found

    async def ready(self, text: str | bytes = TEXT, name: str = "a.txt", **about: str) -> Document:
        """A document that was uploaded and can be searched."""
        uploaded = (await self.upload(text, name, **about)).document
        found = await self.until_ended(uploaded.document_id)
        assert found.state == READY, found
        return found

    async def rows(self, sql: str, *arguments: Any) -> list[Any]:
        async with connect(self.dsn, schema=SCHEMA) as session:
            return list(await session.fetch(sql, *arguments))

    async def value(self, sql: str, *arguments: Any) -> Any:
        return (await self.rows(sql, *arguments))[0][0]

    async def until_idle(self) -> None:
        """Wait until no document is being read, or cleaned up behind."""
        await self.until("SELECT count(*) FROM jobs", 0)

    async def until(self, sql: str, wanted: Any) -> None:
        """Wait for longer than a lease: on a busy machine a job may not be released before that."""
        async with asyncio.timeout(110):
            while await self.value(sql) != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def files(self) -> list[Path]:
        """Stored files, half-written ones too."""
        return [path for path in (self.folder / "files").rglob("*") if path.is_file()]

    def metric(self, name: str, **labels: str) -> float:
        return self.telemetry.registry.get_sample_value(name, labels) or 0.0


class Starter:
    """Starts replicas that end with the test."""

    def __init__(
        self, stack: AsyncExitStack, dsn: str, folder: Path, scripted_model: ScriptedModelFactory
    ) -> None:
        self.stack = stack
        self.dsn = dsn
        self.folder = folder
        self.scripted_model = scripted_model

    async def __call__(
        self,
        *replies: Fixture,
        auth: AuthSettings | None = None,
        engines_: Engines | None = None,
        stack: AsyncExitStack | None = None,
        **more: Any,
    ) -> Caller:
        stack = stack or self.stack
        telemetry = Telemetry.for_tests("documents")
        models = None
        if replies:
            scripted = await self.scripted_model(*replies)
            options = model_settings(
                scripted, schema_in_prompt="never", retry_base_s=0.001, retry_cap_s=0.002
            )
            models = await stack.enter_async_context(Models(options, telemetry))
        used = engines_ or engines(self.folder)
        settings = documents_settings(self.dsn, self.folder, auth, **more)
        server = await stack.enter_async_context(
            serve(settings, telemetry, models=models, engines=used)
        )
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
        return Caller(
            DocumentsServiceStub(channel),
            used,
            telemetry,
            self.dsn,
            self.folder,
            address=server.address,
            channel=channel,
        )


def documents_settings(
    dsn: str, folder: Path, auth: AuthSettings | None = None, **more: Any
) -> DocumentsSettings:
    defaults: dict[str, Any] = {
        "poll_s": 0.2,
        "retry_first_s": 0.01,
        "retry_cap_s": 0.05,
        "index_batch": 2,
    }
    return DocumentsSettings.load(
        server=ServerSettings.load(grace_s=0.1),
        auth=auth or AuthSettings.load(),
        telemetry=TelemetrySettings.load(),
        store_url=dsn,
        files_url=(folder / "files").as_uri(),
        spool_folder=folder / "spool",
        **{**defaults, **more},
    )


def ada_auth() -> AuthSettings:
    return AuthSettings.load(
        static_key=ADA_KEY, static_key_user="ada", run_token_public_keys=PUBLIC_KEY
    )


def parts_of(content: bytes, name: str = "a.txt", **about: str) -> Iterator[Any]:
    yield UploadDocumentRequest(upload=DocumentUpload(name=name, **about))
    for start in range(0, len(content), _PART):
        yield UploadDocumentRequest(content=content[start : start + _PART])


def run_token(
    user: str, audiences: Sequence[str] = ("rag", "documents"), step: str = "r/0/a"
) -> str:
    return RunTokenSigner(PRIVATE_KEY).mint(user, "r", step, audiences, 60)
