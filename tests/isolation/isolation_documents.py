"""Documents of the isolation suite: the service, and what people have there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from documents_doubles import engines

from bos.documents.v1 import (
    DocumentsServiceStub,
    DocumentState,
    DocumentUpload,
    SearchDocumentsRequest,
    UploadDocumentRequest,
    WatchDocumentRequest,
)
from bos_chassis.settings import TelemetrySettings
from bos_documents.service import serve
from bos_documents.settings import DocumentsSettings

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    import grpc

    from bos_chassis.server import GrpcServer
    from bos_chassis.settings import AuthSettings, ServerSettings
    from bos_chassis.telemetry import Telemetry

    from .isolation_harness import Person

_TIMEOUT_S = 60.0


def documents_for(
    dsn: str, folder: Path, server: ServerSettings, auth: AuthSettings, telemetry: Telemetry
) -> AbstractAsyncContextManager[GrpcServer]:
    """The service, whose engines are stand-ins."""
    settings = DocumentsSettings.load(
        server=server,
        auth=auth,
        telemetry=TelemetrySettings.load(),
        store_url=dsn,
        files_url=(folder / "documents").as_uri(),
        spool_folder=folder / "spool",
        poll_s=0.5,
    )
    return serve(settings, telemetry.named("documents"), models=None, engines=engines(folder))


async def give_document(channel: grpc.aio.Channel, token: str, text: str, name: str) -> str:
    """The id of a document of the token's holder that can be searched."""
    stub, credential = DocumentsServiceStub(channel), (("authorization", f"Bearer {token}"),)
    parts = [
        UploadDocumentRequest(upload=DocumentUpload(name=name)),
        UploadDocumentRequest(content=text.encode()),
    ]
    uploaded = await stub.UploadDocument(iter(parts), metadata=credential, timeout=_TIMEOUT_S)
    document_id = uploaded.document.document_id
    state = DocumentState.DOCUMENT_STATE_UNSPECIFIED
    async for each in stub.WatchDocument(
        WatchDocumentRequest(document_id=document_id), metadata=credential, timeout=_TIMEOUT_S
    ):
        state = each.document.state
    assert state == DocumentState.DOCUMENT_STATE_READY
    return str(document_id)


async def give_secret(channel: grpc.aio.Channel, person: Person, secret: str) -> tuple[str, str]:
    """The ids of a document that holds the secret, in its name too, and of its only passage."""
    token, text = person.access_token, f"The {secret} of the documents."
    document_id = await give_document(channel, token, text, f"{secret}.txt")
    found = await DocumentsServiceStub(channel).SearchDocuments(
        SearchDocumentsRequest(query=secret), metadata=(("authorization", f"Bearer {token}"),)
    )
    return document_id, found.passages[0].chunk.chunk_id
