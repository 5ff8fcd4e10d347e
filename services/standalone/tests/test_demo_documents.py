"""Loading of the sample company's documents, before a stand-in for the documents service."""

from collections.abc import AsyncIterator
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
from bos_chassis.telemetry import Telemetry
from bos_demo.documents.rendering import render
from bos_demo.documents.sources import load_sources
from bos_standalone.sample.documents import loading

KEY = "key-of-the-local-user"


@dataclass
class Uploads(DocumentsServiceServicer):
    """Keeps what is uploaded; refuses the n-th upload if ``refused`` is n."""

    files: dict[str, bytes] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    watched: list[str] = field(default_factory=list)
    calls: int = 0
    refused: int = 0

    async def UploadDocument(self, parts: Any, context: Any) -> UploadDocumentResponse:
        self.calls += 1
        if self.calls == self.refused:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no")
        self.keys.add(dict(context.invocation_metadata())["authorization"])
        name, content = "", b""
        async for part in parts:
            name = part.upload.name or name
            content += part.content
        self.files[name] = content
        return UploadDocumentResponse(document=Document(document_id=name))

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
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield servicer, f"127.0.0.1:{port}"
    await server.stop(None)


async def load(target: str, folder: Path) -> Telemetry:
    telemetry = Telemetry.for_tests("standalone")
    async with loading(target, KEY, folder, telemetry) as documents:
        assert await documents.ready(60)
    return telemetry


async def test_first_start_uploads_every_document_as_the_local_user(
    uploads: tuple[Uploads, str], tmp_path: Path
) -> None:
    service, target = uploads
    await load(target, tmp_path)
    assert service.files == {source.name: render(source) for source in load_sources()}
    assert service.keys == {f"Bearer {KEY}"}
    assert set(service.watched) == set(service.files)


async def test_second_start_uploads_no_deleted_document_again(
    uploads: tuple[Uploads, str], tmp_path: Path
) -> None:
    service, target = uploads
    await load(target, tmp_path)
    service.files.clear()
    await load(target, tmp_path)
    assert service.files == {}


async def test_other_documents_than_last_time_are_uploaded(
    uploads: tuple[Uploads, str], tmp_path: Path
) -> None:
    service, target = uploads
    (tmp_path / "demo-documents").write_text("digest of another set\n")
    await load(target, tmp_path)
    assert len(service.files) == len(load_sources())


async def test_refused_upload_is_logged_and_the_next_start_goes_on(
    uploads: tuple[Uploads, str], tmp_path: Path
) -> None:
    service, target = uploads
    service.refused = 5
    telemetry = await load(target, tmp_path)
    assert [each["event"] for each in telemetry.logs] == ["sample documents not loaded"]
    assert len(service.files) == 4
    service.refused = 0
    await load(target, tmp_path)
    assert len(service.files) == len(load_sources())


async def test_end_of_the_standalone_does_not_wait_for_documents(tmp_path: Path) -> None:
    telemetry = Telemetry.for_tests("standalone")
    async with loading("127.0.0.1:1", KEY, tmp_path, telemetry) as documents:
        assert not await documents.ready(0.0)
    assert documents.task.done()
    assert not (tmp_path / "demo-documents").exists()
