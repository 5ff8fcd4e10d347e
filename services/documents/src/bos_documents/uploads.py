"""Uploads: received piece by piece, stored, registered, queued."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from bos.documents.v1 import Document, DocumentState, DocumentUpload, UploadDocumentRequest
from bos_chassis.concurrency.user_places import Full, UserPlaces
from bos_documents.files import DocumentFiles, DocumentKey, Spool, disk_errors
from bos_documents.ingest.rules import MAX_TYPE_CHARS, one_line
from bos_documents.metrics import DocumentsMetrics
from bos_documents.settings import DocumentsSettings
from bos_documents.store.documents import Documents, Registered, Upload
from bos_documents.store.names import shown_name
from bos_documents.store.rows import number_of_date
from bos_errors import (
    Aborted,
    BosError,
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from bos_postgres.audit import By


class Uploads:
    """Takes documents in.

    Args:
        documents: The store.
        files: Where files go.
        spool: Where they are received.
        settings: Bounds.
        metrics: Counts outcomes.
    """

    def __init__(
        self,
        documents: Documents,
        files: DocumentFiles,
        spool: Spool,
        settings: DocumentsSettings,
        metrics: DocumentsMetrics,
    ) -> None:
        self._documents = documents
        self._files = files
        self._spool = spool
        self._settings = settings
        self._metrics = metrics
        self._places = UserPlaces(settings.max_uploads, settings.max_uploads_per_user)

    async def receive(
        self, parts: AsyncIterator[UploadDocumentRequest], user_id: str, by: By
    ) -> tuple[Document, bool]:
        """The document of an upload, and whether its user had it already.

        Raises:
            InvalidArgument: the parts are not in order, or the file is empty or too large.
            ResourceExhausted: the user, or this replica, has too much of it.
            DeadlineExceeded: it took too long.
            Unavailable: the file cannot be kept.
        """
        outcome = "broken_off"
        try:
            with self._place(user_id):
                async with asyncio.timeout(self._settings.upload_timeout_s):
                    document, existed = await self._receive(parts, user_id, by)
            outcome = "existed" if existed else "stored"
        except TimeoutError:
            outcome = "refused"
            raise DeadlineExceeded("The upload took too long.", reason="UPLOAD_TOO_SLOW") from None
        except BosError:
            outcome = "refused"
            raise
        finally:
            self._metrics.uploads.labels(outcome).inc()
        return document, existed

    async def _receive(
        self, parts: AsyncIterator[UploadDocumentRequest], user_id: str, by: By
    ) -> tuple[Document, bool]:
        header = await _header(parts)
        async with self._spool.received() as file:
            digest, size = await self._spooled(parts, file)
            upload = Upload(
                name=shown_name(header.name),
                digest=digest,
                size_bytes=size,
                given_type=one_line(header.document_type)[:MAX_TYPE_CHARS].casefold(),
                given_date=_date(header),
            )
            registered = await self._documents.register(user_id, upload)
            key = DocumentKey(user_id, registered.document_id, digest)
            if not registered.stored:
                await self._stored(key, file, upload, registered, user_id, by)
            document = await self._documents.get(str(registered.document_id), user_id)
            if registered.stored and document.state == DocumentState.DOCUMENT_STATE_FAILED:
                # Uploaded anew, it may be read: also if its file was lost.
                await self._files.put(key, file, size)
                await self._documents.read_again(document.document_id, user_id, by)
                document = await self._documents.get(document.document_id, user_id)
        return document, registered.existed

    async def _spooled(
        self, parts: AsyncIterator[UploadDocumentRequest], file: BinaryIO
    ) -> tuple[bytes, int]:
        """Digest and size of what came, which is in ``file``."""
        seen, size = hashlib.sha256(), 0
        async for part in parts:
            if part.WhichOneof("part") != "content":
                raise InvalidArgument.field("upload", "comes once, before all content")
            size += len(part.content)
            if size > self._settings.max_document_bytes:
                raise InvalidArgument(
                    f"A document has at most {self._settings.max_document_bytes} bytes; split it.",
                    reason="DOCUMENT_TOO_LARGE",
                )
            seen.update(part.content)
            with disk_errors():
                await asyncio.to_thread(file.write, part.content)
        if not size:
            raise InvalidArgument("The file is empty.", reason="DOCUMENT_EMPTY")
        with disk_errors():
            await asyncio.to_thread(file.flush)
        return seen.digest(), size

    async def _stored(
        self,
        key: DocumentKey,
        file: BinaryIO,
        upload: Upload,
        registered: Registered,
        user_id: str,
        by: By,
    ) -> None:
        document_id = registered.document_id
        try:
            await self._files.put(key, file, upload.size_bytes)
            await self._documents.stored(document_id, by)
        except Aborted:
            await self._files.delete(user_id, document_id)
            raise
        except BaseException:
            # Its row would count against the user's limits until the next look at such rows.
            if not registered.existed:
                with suppress(BosError, NotFound):
                    await asyncio.shield(
                        self._documents.hide(document_id, user_id, None, storing=True)
                    )
            raise

    @contextmanager
    def _place(self, user_id: str) -> Iterator[None]:
        if full := self._places.full_for(user_id):
            raise ResourceExhausted(
                "You upload too many documents at once; wait for one of them to end."
                if full is Full.USER
                else "Too many documents are uploaded at the moment; try again shortly.",
                reason="UPLOAD_LIMIT",
                retry_after_s=1.0,
            )
        with self._places.taken(user_id), self._metrics.uploads_open.track_inprogress():
            yield


async def _header(parts: AsyncIterator[UploadDocumentRequest]) -> DocumentUpload:
    async for part in parts:
        if part.WhichOneof("part") == "upload":
            return part.upload
        break
    raise InvalidArgument.field("upload", "must come first")


def _date(header: DocumentUpload) -> int:
    try:
        return number_of_date(header.document_date)
    except ValueError:
        raise InvalidArgument.field("upload.document_date", "is no date of the calendar") from None
