"""Client of the documents service: uploads, progress, search."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Final

import grpc

from bos.documents.v1 import (
    DeleteDocumentRequest,
    DocumentsServiceStub,
    DocumentState,
    DocumentUpload,
    GetDocumentRequest,
    ListDocumentsRequest,
    SearchDocumentsRequest,
    UploadDocumentRequest,
    WatchDocumentRequest,
)
from bos_client.calling import ServiceClient
from bos_client.transport import current_transport, failure_of
from bos_errors import BosError, DeadlineExceeded, InvalidArgument, ResourceExhausted, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from pathlib import Path

    from bos.documents.v1 import (
        Document,
        DocumentsServiceAsyncStub,
        ListDocumentsResponse,
        SearchDocumentsResponse,
        SearchFilter,
        UploadDocumentResponse,
    )
    from bos_client.calling import TokenSource

_PART_BYTES: Final = 256 * 1024
_UPLOAD_TIMEOUT_S: Final = 600.0
_READING_TIMEOUT_S: Final = 3600.0
_STREAM_TIMEOUT_S: Final = 900.0
_DELETE_TIMEOUT_S: Final = 60.0
_ATTEMPTS: Final = 5
_WATCH_ATTEMPTS: Final = 12
_FIRST_WAIT_S: Final = 0.2
_MAX_WAIT_S: Final = 5.0
_MAX_NAME_CHARS: Final = 1024
_ENDED: Final = frozenset((DocumentState.DOCUMENT_STATE_READY, DocumentState.DOCUMENT_STATE_FAILED))
_LIMITS: Final = frozenset(("UPLOAD_LIMIT", "WATCH_LIMIT"))
"""Reasons of refusals that pass by themselves."""
_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
)


def has_ended(document: Document) -> bool:
    """Whether a document is ready or failed."""
    return document.state in _ENDED


class DocumentsClient(ServiceClient):
    """A client of the documents service; see :class:`ServiceClient`."""

    def __init__(
        self, target: str, *, api_key: str | None = None, tokens: TokenSource | None = None
    ) -> None:
        super().__init__(target, api_key=api_key, tokens=tokens, options=_OPTIONS)
        # A channel without asyncio: of an upload that is refused while it is sent, grpc.aio (1.85)
        # may report an internal error in place of the reason.
        self._blocking: grpc.Channel | None = None

    async def __aexit__(self, *exc_info: object) -> None:
        blocking, self._blocking = self._blocking, None
        if blocking is not None:
            blocking.close()
        await super().__aexit__(*exc_info)

    async def upload(
        self,
        path: Path,
        *,
        document_type: str = "",
        document_date: str = "",
        sent: Callable[[int], None] | None = None,
    ) -> UploadDocumentResponse:
        """Upload a file. The same content again is the same document, so it is safe to repeat.

        Args:
            path: The file.
            document_type: Kind of document; found from the content if empty.
            document_date: Date that it bears, as YYYY-MM-DD; found from the content if empty.
            sent: Called with the number of bytes sent so far.

        Raises:
            InvalidArgument: it cannot be read, or is no file of a kind and size that is accepted.
            ResourceExhausted: the user has too many documents, or too many bytes of them.
        """
        name = os.fsencode(path.name).decode("utf-8", "replace")[:_MAX_NAME_CHARS]
        header = DocumentUpload(name=name, document_type=document_type, document_date=document_date)
        failures = 0
        while True:
            with _opened(path) as file:
                try:
                    return await self._uploaded(header, file, sent)
                except BosError as error:
                    failures += 1
                    if failures >= _ATTEMPTS or not _passes(error):
                        raise
                    await asyncio.sleep(_wait_s(failures))

    async def watch(
        self, document_id: str, *, within_s: float = _READING_TIMEOUT_S
    ) -> AsyncGenerator[Document, None]:
        """A document after each change until it is ready or failed, across lost connections.

        Raises:
            DeadlineExceeded: it is still being read after ``within_s`` seconds.
        """
        ends_at = time.monotonic() + within_s
        failures = 0
        last: Document | None = None
        while True:
            left_s = ends_at - time.monotonic()
            if left_s <= 0:
                raise DeadlineExceeded("The document is still being read; that goes on.")
            request = WatchDocumentRequest(document_id=document_id)
            call = self._stub.WatchDocument(
                request, timeout=min(left_s, _STREAM_TIMEOUT_S), metadata=await self._metadata()
            )
            lost: BosError = Unavailable("The stream ended before the document was read.")
            try:
                async for message in call:
                    if message.document != last:
                        last, failures = message.document, 0
                        yield last
                    if has_ended(message.document):
                        return
            except grpc.RpcError as error:
                lost = failure_of(error)
                if not (_passes(lost) or isinstance(lost, DeadlineExceeded)):
                    raise lost from error
            finally:
                call.cancel()
            failures += 1
            if failures >= _WATCH_ATTEMPTS:
                raise lost
            await asyncio.sleep(min(_wait_s(failures), max(0.0, ends_at - time.monotonic())))

    async def documents(self, *, page_size: int = 0, page_token: str = "") -> ListDocumentsResponse:
        """A page of the caller's documents, newest first."""
        request = ListDocumentsRequest(page_size=page_size, page_token=page_token)
        return await self._unary(self._stub.ListDocuments, request)

    async def document(self, document_id: str) -> Document:
        """A document."""
        request = GetDocumentRequest(document_id=document_id)
        return (await self._unary(self._stub.GetDocument, request)).document

    async def delete(self, document_id: str) -> None:
        """Delete a document: file, passages and vectors."""
        request = DeleteDocumentRequest(document_id=document_id)
        await self._unary(self._stub.DeleteDocument, request, _DELETE_TIMEOUT_S)

    async def search(
        self, query: str, search_filter: SearchFilter | None = None, *, limit: int = 0
    ) -> SearchDocumentsResponse:
        """Passages of the caller's documents, best first."""
        request = SearchDocumentsRequest(query=query, filter=search_filter, limit=limit)
        return await self._unary(self._stub.SearchDocuments, request)

    async def _uploaded(
        self, header: DocumentUpload, file: BinaryIO, sent: Callable[[int], None] | None
    ) -> UploadDocumentResponse:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def in_loop(what: Callable[..., object], *arguments: object) -> None:
            # The loop may be closed where a command is interrupted.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(what, *arguments)

        parts = _Parts(header, file, lambda total: in_loop(sent, total) if sent else None)
        call = self._uploads.UploadDocument.future(
            iter(parts), timeout=_UPLOAD_TIMEOUT_S, metadata=await self._metadata()
        )
        parts.belong_to(call)
        call.add_done_callback(lambda _: in_loop(ended.set))
        try:
            await ended.wait()
            if parts.error is not None:
                raise parts.error
            return call.result()
        except grpc.RpcError as error:
            raise failure_of(error) from error
        finally:
            call.cancel()

    @property
    def _uploads(self) -> DocumentsServiceStub:
        if self._blocking is None:
            address, credentials = current_transport().reach(self.target)
            if credentials is None:
                self._blocking = grpc.insecure_channel(address, _OPTIONS)
            else:
                self._blocking = grpc.secure_channel(address, credentials, _OPTIONS)
        return DocumentsServiceStub(self._blocking)

    @property
    def _stub(self) -> DocumentsServiceAsyncStub:
        return DocumentsServiceStub(self._channel)


class _Parts:
    """Messages of an upload, read from a file in a thread of gRPC."""

    def __init__(self, header: DocumentUpload, file: BinaryIO, sent: Callable[[int], None]) -> None:
        self.error: BosError | None = None
        self._header = header
        self._file = file
        self._sent = sent
        self._call: grpc.Future[UploadDocumentResponse] | None = None
        self._has_call = threading.Event()

    def belong_to(self, call: grpc.Future[UploadDocumentResponse]) -> None:
        """The call to cancel where the file cannot be read to its end."""
        self._call = call
        self._has_call.set()

    def __iter__(self) -> Iterator[UploadDocumentRequest]:
        yield UploadDocumentRequest(upload=self._header)
        total = 0
        while part := self._read():
            yield UploadDocumentRequest(content=part)
            total += len(part)
            self._sent(total)

    def _read(self) -> bytes:
        try:
            return self._file.read(_PART_BYTES)
        except (OSError, ValueError) as error:  # ValueError: closed, as the upload was given up
            self.error = _unreadable(error)
        # The end of the messages would be the end of the document.
        self._has_call.wait()
        assert self._call is not None
        self._call.cancel()
        return b""


def _opened(path: Path) -> BinaryIO:
    """A regular file, opened without waiting: a pipe may have no writer."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise InvalidArgument("It is no file.", reason="FILE_UNREADABLE")
        return os.fdopen(descriptor, "rb")
    except OSError as error:
        raise _unreadable(error) from None


def _unreadable(error: OSError | ValueError) -> InvalidArgument:
    why = getattr(error, "strerror", None) or type(error).__name__
    return InvalidArgument(f"It cannot be read: {why}.", reason="FILE_UNREADABLE")


def _passes(error: BosError) -> bool:
    """Whether the same call may succeed shortly."""
    if isinstance(error, ResourceExhausted):
        return error.reason in _LIMITS
    return isinstance(error, Unavailable)


def _wait_s(failures: int) -> float:
    return min(_MAX_WAIT_S, _FIRST_WAIT_S * 2.0 ** (failures - 1))
