"""Documents service with its real engines, and the document agent before it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bos.documents.v1 import DocumentUpload, UploadDocumentRequest
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_documents import service as documents
from bos_documents.settings import DocumentsSettings
from bos_llm import Models
from bos_rag import service as rag
from bos_rag.settings import RagSettings


@asynccontextmanager
async def documents_and_rag(
    dsn: str, folder: Path, models: Models, *, describing: Models | None = None
) -> AsyncIterator[tuple[Any, Any]]:
    """Both servers, until the block is left.

    Args:
        dsn: Empty database of the documents service.
        folder: Where its files go.
        models: Of the agent.
        describing: Of the service; None: descriptions are by rule.
    """
    async with AsyncExitStack() as stack:
        found = await stack.enter_async_context(
            documents.serve(
                DocumentsSettings.load(
                    server=ServerSettings.load(grace_s=0.1),
                    auth=AuthSettings.load(),
                    store_url=dsn,
                    files_url=(folder / "files").as_uri(),
                    index_folder=folder / "index",
                    spool_folder=folder / "spool",
                ),
                Telemetry.for_tests("documents"),
                models=describing,
            )
        )
        agent = await stack.enter_async_context(
            rag.serve(
                RagSettings.load(
                    server=ServerSettings(reflection=False, grace_s=1),
                    auth=AuthSettings.load(),
                    documents_target=found.address,
                ),
                Telemetry.for_tests("rag"),
                models=models,
            )
        )
        yield found, agent


def upload(name: str, content: bytes) -> Iterator[UploadDocumentRequest]:
    """Messages that upload a file."""
    yield UploadDocumentRequest(upload=DocumentUpload(name=name))
    yield UploadDocumentRequest(content=content)
