"""Watching documents: a stream of changes, bounded in number and in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

from bos.documents.v1 import Document, DocumentState
from bos_chassis.concurrency.user_places import Full, UserPlaces
from bos_chassis.deadlines import timeout_for
from bos_documents.settings import DocumentsSettings
from bos_documents.store.documents import Documents
from bos_errors import ResourceExhausted

_ENDED: Final = frozenset((DocumentState.DOCUMENT_STATE_READY, DocumentState.DOCUMENT_STATE_FAILED))
_BREATHER_S: Final = 0.05
"""Minimum time between two messages, so that a thousand pages are reported in fewer."""
_MARGIN_S: Final = 0.2
"""Of the caller's deadline, in which the stream ends in good order."""


class Watches:
    """Open streams, and the documents that they wait for.

    Args:
        documents: The store.
        settings: Bounds.
    """

    def __init__(self, documents: Documents, settings: DocumentsSettings) -> None:
        self._documents = documents
        self._settings = settings
        self._places = UserPlaces(settings.max_watches, settings.max_watches_per_user)
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._ending = False

    @property
    def open(self) -> int:
        """Streams now."""
        return self._places.open

    def changed(self, document_id: str | None) -> None:
        """A document has changed; None: any may have."""
        found = self._waiting if document_id is None else (document_id,)
        for each in found:
            for event in self._waiting.get(each, ()):
                event.set()

    def end(self) -> None:
        """End all streams in good order: the service is to stop."""
        self._ending = True
        self.changed(None)

    async def watch(self, document_id: str, user_id: str) -> AsyncIterator[Document]:
        """The document now and after each change, until it is ready or failed, or time is over.

        Raises:
            NotFound: there is none, or not any more, or it belongs to another user.
            ResourceExhausted: too many are watched.
        """
        with self._place(user_id), self._listening(document_id) as changed:
            seen = 0
            clock = asyncio.get_running_loop().time
            ends_at = clock() + timeout_for(None, self._settings.watch_timeout_s) - _MARGIN_S
            while True:
                changed.clear()
                document, version = await self._documents.current(document_id, user_id)
                if version != seen:
                    seen = version
                    yield document
                if self._ending or document.state in _ENDED or clock() >= ends_at:
                    return
                await asyncio.sleep(_BREATHER_S)
                # A notice may be lost with its session, so the row is looked at now and then.
                wait_s = min(self._settings.poll_s, ends_at - clock())
                try:
                    async with asyncio.timeout(max(0.0, wait_s)):
                        await changed.wait()
                except TimeoutError:
                    continue

    @contextmanager
    def _listening(self, document_id: str) -> Iterator[asyncio.Event]:
        event = asyncio.Event()
        found = self._waiting.setdefault(document_id.lower(), set())
        found.add(event)
        try:
            yield event
        finally:
            found.discard(event)
            if not found and self._waiting.get(document_id.lower()) is found:
                del self._waiting[document_id.lower()]

    @contextmanager
    def _place(self, user_id: str) -> Iterator[None]:
        if full := self._places.full_for(user_id):
            raise ResourceExhausted(
                "You watch too many documents at once; stop watching one first."
                if full is Full.USER
                else "Too many documents are watched at the moment; try again shortly.",
                reason="WATCH_LIMIT",
                retry_after_s=1.0,
            )
        with self._places.taken(user_id):
            yield
