"""Upload of the sample company's documents and files, once per data folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from bos.documents.v1 import (
    Document,
    DocumentsServiceServicer,
    UploadDocumentResponse,
    WatchDocumentResponse,
    add_DocumentsServiceServicer_to_server,
)
from bos.files.v1 import (
    FileServiceServicer,
    UploadFileResponse,
    add_FileServiceServicer_to_server,
)
from bos_chassis.telemetry import Telemetry
from bos_demo.documents.rendering import render
from bos_demo.documents.sources import load_sources
from bos_demo.uploads import sample_uploads
from bos_standalone.sample.documents import loading
from bos_standalone.sample.files import upload_sample

KEY = "key-of-the-local-user"


@dataclass
class Uploads(DocumentsServiceServicer, FileServiceServicer):
    """Keeps what is uploaded; refuses uploads from the n-th on if ``refused`` is n."""

    files: dict[str, bytes] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    watched: list[str] = field(default_factory=list)
    calls: int = 0
    refused: int = 0

    async def UploadDocument(self, parts: Any, context: Any) -> UploadDocumentResponse:
        return UploadDocumentResponse(
            document=Document(document_id=await self.take(parts, context))
        )

    async def UploadFile(self, parts: Any, context: Any) -> UploadFileResponse:
        await self.take(parts, context)
        return UploadFileResponse()

    async def take(self, parts: Any, context: Any) -> str:
        self.calls += 1
        if self.refused and self.calls >= self.refused:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no")
        self.keys.add(dict(context.invocation_metadata())["authorization"])
        name, content = "", b""
        async for part in parts:
            name = part.upload.name or name
            content += part.content
        self.files[name] = content
        return name

    async def WatchDocument(
        self, request: Any, context: Any
    ) -> AsyncIterator[WatchDocumentResponse]:
        self.watched.append(request.document_id)
        yield WatchDocumentResponse(document=Document(document_id=request.document_id))


@pytest.fixture
async def uploads() -> AsyncIterator[tuple[Uploads, str]]:
    servicer = Uploads()
    server = grpc.aio.server()
    add_DocumentsServiceServicer_to_server(servicer, server)
    add_FileServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield servicer, f"127.0.0.1:{port}"
    await server.stop(None)


async def load_documents(target: str, folder: Path, telemetry: Telemetry) -> None:
    async with loading(target, KEY, folder, telemetry) as documents:
        assert await documents.ready(60)


async def load_files(target: str, folder: Path, telemetry: Telemetry) -> None:
    uploaded = await upload_sample(target, KEY, folder, telemetry)
    assert uploaded == (not telemetry.logs)


Load = Callable[[str, Path, Telemetry], Awaitable[None]]


def rendered() -> Mapping[str, bytes]:
    return {source.name: render(source) for source in load_sources()}


@pytest.mark.parametrize(
    ("load", "sample", "marker", "event"),
    [
        (load_documents, rendered, "demo-documents", "sample documents not loaded"),
        (load_files, sample_uploads, "demo-files", "sample files not uploaded"),
    ],
)
async def test_sample_is_uploaded_once_and_after_a_failure_at_the_next_start(
    uploads: tuple[Uploads, str],
    tmp_path: Path,
    load: Load,
    sample: Callable[[], Mapping[str, bytes]],
    marker: str,
    event: str,
) -> None:
    service, target = uploads
    service.refused = len(sample())
    telemetry = Telemetry.for_tests("standalone")
    await load(target, tmp_path, telemetry)
    assert [each["event"] for each in telemetry.logs] == [event]
    assert not (tmp_path / marker).exists()

    service.refused = 0
    await load(target, tmp_path, Telemetry.for_tests("standalone"))
    assert service.files == sample()
    assert service.keys == {f"Bearer {KEY}"}
    assert set(service.watched) == (set(service.files) if load is load_documents else set())

    service.files.clear()  # deleted by the user
    await load(target, tmp_path, Telemetry.for_tests("standalone"))
    assert service.files == {}

    (tmp_path / marker).write_text("digest of another sample\n")
    await load(target, tmp_path, Telemetry.for_tests("standalone"))
    assert service.files == sample()


async def test_end_of_the_standalone_does_not_wait_for_documents(tmp_path: Path) -> None:
    telemetry = Telemetry.for_tests("standalone")
    async with loading("127.0.0.1:1", KEY, tmp_path, telemetry) as documents:
        assert not await documents.ready(0.0)
    assert documents.task.done()
    assert not (tmp_path / "demo-documents").exists()
