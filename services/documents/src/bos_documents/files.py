"""Uploaded files: spooled while they come and while they are read, kept in the artefact store."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import tempfile
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from bos_artefacts import Artefact, Owner
from bos_errors import ConfigurationError, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from uuid import UUID

    from bos_artefacts import ArtefactStore

_PREFIX: Final = "bos-documents-"
_LOCK: Final = "lock"


class Spool:
    """A folder of this process for files under way; what a killed process left is removed.

    Args:
        folder: Where it is.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def received(self) -> AsyncIterator[BinaryIO]:
        """An empty file without a name, which is gone when the process is.

        Raises:
            Unavailable: the disk is full, or does not answer.
        """
        opening = asyncio.ensure_future(asyncio.to_thread(self._unnamed))
        try:
            with disk_errors():
                file = await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The thread goes on: what it opens is closed by this callback alone.
            opening.add_done_callback(_close)
            raise
        try:
            yield file
        finally:
            with suppress(OSError):  # of what could not be written, and is not wanted any more
                file.close()

    def _unnamed(self) -> BinaryIO:
        return tempfile.TemporaryFile("w+b", dir=self._folder)

    @asynccontextmanager
    async def fetched(self, files: DocumentFiles, key: DocumentKey) -> AsyncIterator[Path]:
        """A document's file under a name, for the length of the block.

        Raises:
            ArtefactMissing, ArtefactDamaged: the store has lost it.
            Unavailable: store or disk do not answer.
        """
        with disk_errors():
            descriptor, name = tempfile.mkstemp(dir=self._folder)
        path = Path(name)
        try:
            with disk_errors(), os.fdopen(descriptor, "wb") as file:
                await files.fetch(key, file)
            yield path
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)


def _close(opening: asyncio.Future[BinaryIO]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


class DocumentKey:
    """A document's file: whose, of which document, with which content."""

    __slots__ = ("digest", "owner")

    def __init__(self, user_id: str, document_id: UUID, digest: bytes) -> None:
        self.owner = Owner(user_id, document_id)
        self.digest = digest.hex()


class DocumentFiles:
    """Files of documents in the artefact store, in the place of a run's.

    Args:
        store: Whose blobs are documents and nothing else.
    """

    def __init__(self, store: ArtefactStore) -> None:
        self._store = store

    async def put(self, key: DocumentKey, source: BinaryIO, size_bytes: int) -> None:
        """Store a file; storing it again changes nothing.

        Raises:
            Unavailable: the store is full, or does not answer.
        """
        await self._store.put_file(key.owner, source, Artefact(key.digest, size_bytes))

    async def fetch(self, key: DocumentKey, into: BinaryIO) -> None:
        """Copy a file, checked against its digest.

        Raises:
            ArtefactMissing, ArtefactDamaged: the store has lost it.
            Unavailable: the store does not answer.
        """
        await self._store.fetch(key.owner, key.digest, into)

    async def delete(self, user_id: str, document_id: UUID) -> None:
        """Delete a document's file, also a half-written one.

        Raises:
            Unavailable: the store does not answer.
        """
        await self._store.delete(Owner(user_id, document_id))


@contextmanager
def disk_errors() -> Iterator[None]:
    """Failures of the disk as a service that is away: later there may be room.

    Raises:
        Unavailable: there was one.
    """
    try:
        yield
    except OSError as error:
        raise Unavailable(
            "The file cannot be kept at the moment.",
            reason="DOCUMENT_STORAGE_UNAVAILABLE",
            retry_after_s=5.0,
        ) from error


@contextmanager
def open_spool(folder: Path | None) -> Iterator[Spool]:
    """A spool in ``folder``, or where the system has temporary files; removed at the end.

    Raises:
        ConfigurationError: the folder cannot be used.
    """
    parent = Path(tempfile.gettempdir()) if folder is None else folder
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_abandoned(parent)
        own = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        lock = os.open(own / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        raise ConfigurationError(
            f"The folder {parent} cannot be used ({type(error).__name__}). Set "
            "BOS_DOCUMENTS_SPOOL_FOLDER to one that can be written."
        ) from error
    try:
        yield Spool(own)
    finally:
        shutil.rmtree(own, ignore_errors=True)
        os.close(lock)


def remove_abandoned(parent: Path) -> None:
    """Remove the spools of processes that were killed: nothing holds their locks."""
    for found in parent.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(found / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # of another user, or being made
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(found, ignore_errors=True)
        except OSError:
            continue  # in use
        finally:
            os.close(lock)
