"""Upload of the sample company's documents for the local user, once per data folder."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos.documents.v1 import (
    DocumentsServiceStub,
    DocumentUpload,
    UploadDocumentRequest,
    WatchDocumentRequest,
)
from bos_chassis.channels import Channels, translate_rpc_errors
from bos_demo.documents.rendering import render
from bos_demo.documents.sources import load_sources
from bos_errors import BosError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from bos.documents.v1 import DocumentsServiceAsyncStub
    from bos_chassis.telemetry import Telemetry

_MARKER = "demo-documents"
_CALL_TIMEOUT_S = 60.0
_READING_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class DemoDocuments:
    """Documents being loaded in the background."""

    task: asyncio.Task[None]

    async def ready(self, within_s: float) -> bool:
        """Wait until all are read; whether they are."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.shield(self.task)
        return self.task.done()


@asynccontextmanager
async def loading(
    target: str, api_key: str, folder: Path, telemetry: Telemetry
) -> AsyncIterator[DemoDocuments]:
    """Load the documents beside the block; what is left when the block ends comes next time.

    Args:
        target: Address of the documents service.
        api_key: API key of the local user, who owns the documents.
        folder: Data folder, which remembers that they are loaded: a user may delete them.
        telemetry: For failures, which are logged: nothing else depends on these documents.
    """
    task = asyncio.create_task(_loaded(target, api_key, folder, telemetry), name="demo-documents")
    try:
        yield DemoDocuments(task)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _loaded(target: str, api_key: str, folder: Path, telemetry: Telemetry) -> None:
    log = telemetry.logger("bos.standalone")
    marker = folder / _MARKER
    try:
        files = await asyncio.to_thread(_files)
        version = _version(files)
        if marker.exists() and marker.read_text(encoding="ascii").strip() == version:
            return
        async with Channels(telemetry) as channels:
            client = _Client(DocumentsServiceStub(channels.get(target)), api_key)
            uploaded = [await client.upload(name, content) for name, content in files.items()]
            # From here on they are read, whether this process goes on or another one does.
            marker.write_text(version + "\n", encoding="ascii")
            for document_id in uploaded:
                await client.read(document_id)
        log.info("sample documents loaded", documents=len(files))
    except (BosError, OSError) as error:
        log.warning("sample documents not loaded", error=type(error).__name__)


class _Client:
    def __init__(self, stub: DocumentsServiceAsyncStub, api_key: str) -> None:
        self._stub = stub
        self._metadata = (("authorization", f"Bearer {api_key}"),)

    async def upload(self, name: str, content: bytes) -> str:
        """Upload a file; the same one again is the same document. Return its id."""
        with translate_rpc_errors():
            response = await self._stub.UploadDocument(
                _parts(name, content), metadata=self._metadata, timeout=_CALL_TIMEOUT_S
            )
        return response.document.document_id

    async def read(self, document_id: str) -> None:
        """Wait until a document is read or has failed."""
        request = WatchDocumentRequest(document_id=document_id)
        with translate_rpc_errors():
            watched = self._stub.WatchDocument(
                request, metadata=self._metadata, timeout=_READING_TIMEOUT_S
            )
            async for _ in watched:
                pass


def _files() -> dict[str, bytes]:
    return {source.name: render(source) for source in load_sources()}


def _version(files: dict[str, bytes]) -> str:
    """Digest of all files: another set of documents is loaded again."""
    whole = hashlib.sha256()
    for name, content in files.items():
        whole.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    return whole.hexdigest()


def _parts(name: str, content: bytes) -> Iterator[UploadDocumentRequest]:
    """None of these files is larger than one part may be."""
    yield UploadDocumentRequest(upload=DocumentUpload(name=name))
    yield UploadDocumentRequest(content=content)
