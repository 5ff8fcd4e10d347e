"""A document of the sample company, uploaded and read."""

from __future__ import annotations

from collections.abc import Iterator

import grpc

from bos.documents.v1 import (
    DocumentsServiceStub,
    DocumentUpload,
    UploadDocumentRequest,
    WatchDocumentRequest,
)
from bos_demo.documents.rendering import render
from bos_demo.documents.sources import load_sources


def upload(name: str, content: bytes) -> Iterator[UploadDocumentRequest]:
    yield UploadDocumentRequest(upload=DocumentUpload(name=name))
    yield UploadDocumentRequest(content=content)


async def upload_source(channel: grpc.aio.Channel, name: str, **how: str) -> None:
    """Upload a document of the company with this metadata, and wait until it is read."""
    (source,) = [each for each in load_sources() if each.name == name]
    metadata, stub = tuple(how.items()), DocumentsServiceStub(channel)
    answer = await stub.UploadDocument(
        upload(source.name, render(source)), timeout=60, metadata=metadata
    )
    request = WatchDocumentRequest(document_id=answer.document.document_id)
    async for _ in stub.WatchDocument(request, timeout=240, metadata=metadata):
        pass
