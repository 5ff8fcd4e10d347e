"""A documents service that returns the passages that a test sets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from bos.documents.v1 import (
    Chunk,
    DocumentMatch,
    DocumentsServiceServicer,
    Passage,
    SearchDocumentsRequest,
    SearchDocumentsResponse,
    add_DocumentsServiceServicer_to_server,
)


def passage(
    number: int, text: str, *, dense: float | None = 0.6, name: str = "contract.pdf", **chunk: Any
) -> Passage:
    about = {"first_page": number, "section_path": [f"Section {number}"], **chunk}
    found = Passage(
        chunk=Chunk(chunk_id=f"chunk-{number}", document_name=name, text=text, **about),
        score=1 / number,
    )
    if dense is not None:
        found.dense_score = dense
    return found


@dataclass
class ScriptedDocuments(DocumentsServiceServicer):
    """Returns the passages set, or those that ``under_filter`` holds where a filter is given."""

    passages: list[Passage] = field(default_factory=list)
    under_filter: list[Passage] | None = None
    searched: int = 12
    matches: list[DocumentMatch] = field(default_factory=list)
    coverage: float = 0.0
    failure: grpc.StatusCode | None = None
    requests: list[SearchDocumentsRequest] = field(default_factory=list)

    async def SearchDocuments(
        self, request: SearchDocumentsRequest, context: Any
    ) -> SearchDocumentsResponse:
        self.requests.append(request)
        if self.failure is not None:
            await context.abort(self.failure, "no")
        filtered = bool(request.filter.ByteSize()) and self.under_filter is not None
        found = (self.under_filter or []) if filtered else self.passages
        return SearchDocumentsResponse(
            passages=found[: request.limit],
            documents_searched=self.searched,
            documents=self.matches,
            coverage=self.coverage,
        )


@asynccontextmanager
async def serving_documents(documents: ScriptedDocuments) -> AsyncIterator[str]:
    server = grpc.aio.server()
    add_DocumentsServiceServicer_to_server(documents, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)
