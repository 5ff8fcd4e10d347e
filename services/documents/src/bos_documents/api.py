"""The gRPC face of documents: for people their own, for runs searching alone. Translation only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from bos.documents.v1 import (
    DeleteDocumentRequest,
    DeleteDocumentResponse,
    DocumentsServiceServicer,
    GetChunkRequest,
    GetChunkResponse,
    GetDocumentRequest,
    GetDocumentResponse,
    ListChunksRequest,
    ListChunksResponse,
    ListDocumentsRequest,
    ListDocumentsResponse,
    ReindexDocumentRequest,
    ReindexDocumentResponse,
    SearchDocumentsRequest,
    SearchDocumentsResponse,
    UploadDocumentRequest,
    UploadDocumentResponse,
    WatchDocumentRequest,
    WatchDocumentResponse,
)
from bos_chassis.auth.callers import LOCAL_USER, current_principal
from bos_documents.ingest.runner import Runner
from bos_documents.search.searching import Searching
from bos_documents.store.documents import Documents
from bos_documents.uploads import Uploads
from bos_documents.watching import Watches
from bos_errors import BosError, PermissionDenied
from bos_postgres.audit import By

SERVICE_NAME: Final = "bos.documents.v1.DocumentsService"
_RUN_TOKEN: Final = "run_token"  # noqa: S105  a kind of principal
_DELETE_S: Final = 20.0


class DocumentsServicer(DocumentsServiceServicer):
    """Implements ``bos.documents.v1.DocumentsService``."""

    def __init__(
        self,
        documents: Documents,
        uploads: Uploads,
        watches: Watches,
        searching: Searching,
        runner: Runner,
    ) -> None:
        self._documents = documents
        self._uploads = uploads
        self._watches = watches
        self._searching = searching
        self._runner = runner

    async def UploadDocument(
        self, request_iterator: AsyncIterator[UploadDocumentRequest], context: Any
    ) -> UploadDocumentResponse:
        """A document more, or the one that has this content."""
        document, existed = await self._uploads.receive(request_iterator, _person(), _by())
        return UploadDocumentResponse(document=document, existed=existed)

    async def GetDocument(self, request: GetDocumentRequest, context: Any) -> GetDocumentResponse:
        """One of the caller's documents."""
        found = await self._documents.get(request.document_id, _person())
        return GetDocumentResponse(document=found)

    async def ListDocuments(
        self, request: ListDocumentsRequest, context: Any
    ) -> ListDocumentsResponse:
        """The caller's documents."""
        found, token = await self._documents.listed(request, _person())
        return ListDocumentsResponse(documents=found, next_page_token=token)

    async def ListChunks(self, request: ListChunksRequest, context: Any) -> ListChunksResponse:
        """Passages of one of the caller's documents."""
        found, token = await self._documents.chunks(request, _person())
        return ListChunksResponse(chunks=found, next_page_token=token)

    async def DeleteDocument(
        self, request: DeleteDocumentRequest, context: Any
    ) -> DeleteDocumentResponse:
        """A document less: from now on none of it is found, and its file and vectors go.

        Where index or files do not answer, or another replica still works on it, they go later.
        """
        user_id = _person()
        found = await self._documents.get(request.document_id, user_id)
        async with self._runner.paused(UUID(found.document_id)):
            key = await self._documents.hide(found.document_id, user_id, _by())
            with suppress(BosError, TimeoutError):
                async with asyncio.timeout(_DELETE_S):
                    await self._runner.run_now(key)
        return DeleteDocumentResponse()

    async def ReindexDocument(
        self, request: ReindexDocumentRequest, context: Any
    ) -> ReindexDocumentResponse:
        """Read a document anew."""
        user_id = _person()
        await self._documents.read_again(request.document_id, user_id, _by())
        found = await self._documents.get(request.document_id, user_id)
        return ReindexDocumentResponse(document=found)

    async def WatchDocument(
        self, request: WatchDocumentRequest, context: Any
    ) -> AsyncIterator[WatchDocumentResponse]:
        """One of the caller's documents, as it changes."""
        async for document in self._watches.watch(request.document_id, _person()):
            yield WatchDocumentResponse(document=document)

    async def SearchDocuments(
        self, request: SearchDocumentsRequest, context: Any
    ) -> SearchDocumentsResponse:
        """Passages of the caller's documents, or of those of the run's user."""
        return await self._searching.search(request, _person_or_run())

    async def GetChunk(self, request: GetChunkRequest, context: Any) -> GetChunkResponse:
        """A passage with its neighbours."""
        chunk, before, after = await self._documents.chunk(request, _person_or_run())
        return GetChunkResponse(chunk=chunk, before=before, after=after)


def _person() -> str:
    """The caller's user id; all callers are one user where authentication is off.

    Raises:
        PermissionDenied: a run calls.
    """
    principal = current_principal()
    if principal is not None and principal.kind == _RUN_TOKEN:
        raise PermissionDenied("This is for people; a run token does not open it.")
    return _person_or_run()


def _person_or_run() -> str:
    """The caller's user id, or that of the user whose run calls."""
    principal = current_principal()
    return LOCAL_USER if principal is None else principal.user_id


def _by() -> By:
    """Who calls, as the audit trail names it."""
    return By.of(current_principal())
