"""Artefacts in a folder or in an S3-compatible store, through one library."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Awaitable
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, Final, TypeVar
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError, NotFoundError
from obstore.store import LocalStore, S3Store

from bos_artefacts.durable import copy_durably, write_durably
from bos_artefacts.owner import Owner
from bos_artefacts.store import (
    Artefact,
    ArtefactDamaged,
    ArtefactMissing,
    ArtefactTooLarge,
)
from bos_errors import ConfigurationError, Unavailable

T = TypeVar("T")

MAX_BLOB_BYTES: Final = 32 * 1024 * 1024
_DEADLINE_S: Final = 15.0
_DELETE_DEADLINE_S: Final = 60.0
_FILE_DEADLINE_S: Final = 120.0
"""Of files that are copied piece by piece, which may be larger than blobs in memory."""
_PIECE_BYTES: Final = 1024 * 1024
_CONNECT_S: Final = 3.0


class ObjectArtefacts:
    """An :class:`ArtefactStore` of objects.

    Args:
        objects: The object store, at its prefix.
        folder: The same place as a folder, if it is one.
        max_blob_bytes: Largest blob.
        deadline_s: Longest time that putting or getting one may take, in seconds.
    """

    def __init__(
        self,
        objects: LocalStore | S3Store,
        *,
        folder: Path | None = None,
        max_blob_bytes: int = MAX_BLOB_BYTES,
        deadline_s: float = _DEADLINE_S,
    ) -> None:
        self._objects = objects
        self._folder = folder
        self._max_blob_bytes = max_blob_bytes
        self._deadline_s = deadline_s

    async def put(self, owner: Owner, content: bytes) -> Artefact:
        """See :class:`ArtefactStore`. What a folder returned is on its disk, whole."""
        if len(content) > self._max_blob_bytes:
            raise ArtefactTooLarge(
                f"A blob of {len(content)} bytes is too large; at most {self._max_blob_bytes}."
            )
        digest = hashlib.sha256(content).hexdigest()
        await self._within(self._deadline_s, self._write(owner.key(digest), content))
        return Artefact(digest, len(content))

    async def get(self, owner: Owner, digest: str) -> bytes:
        """See :class:`ArtefactStore`."""
        return await self._within(self._deadline_s, self._read(owner.key(digest), digest))

    async def put_file(self, owner: Owner, source: BinaryIO, artefact: Artefact) -> None:
        """See :class:`ArtefactStore`. What a folder returned is on its disk, whole."""
        if artefact.size_bytes > self._max_blob_bytes:
            raise ArtefactTooLarge(
                f"A file of {artefact.size_bytes} bytes is too large; "
                f"at most {self._max_blob_bytes}."
            )
        key = owner.key(artefact.digest)
        await self._within(_FILE_DEADLINE_S, self._copy(key, source))

    async def fetch(self, owner: Owner, digest: str, into: BinaryIO) -> int:
        """See :class:`ArtefactStore`."""
        key = owner.key(digest)
        return await self._within(_FILE_DEADLINE_S, self._fetch(key, digest, into))

    async def delete(self, owner: Owner) -> int:
        """See :class:`ArtefactStore`."""
        return await self._within(_DELETE_DEADLINE_S, self._delete(owner.prefix))

    async def _write(self, key: str, content: bytes) -> None:
        if self._folder is None:
            await self._objects.put_async(key, content)
        else:  # by hand, because the library does not sync what it writes
            await asyncio.to_thread(write_durably, self._folder / key, content)

    async def _copy(self, key: str, source: BinaryIO) -> None:
        source.seek(0)
        if self._folder is None:
            await self._objects.put_async(key, source)
        else:
            await asyncio.to_thread(copy_durably, self._folder / key, source)

    async def _fetch(self, key: str, digest: str, into: BinaryIO) -> int:
        seen, size = hashlib.sha256(), 0
        try:
            found = await self._objects.get_async(key)
            async for piece in found.stream(min_chunk_size=_PIECE_BYTES):
                size += len(piece)
                if size > self._max_blob_bytes:
                    raise ArtefactDamaged("A stored value is larger than any that was stored.")
                await asyncio.to_thread(into.write, piece)
                seen.update(piece)
        except (NotFoundError, FileNotFoundError):
            raise ArtefactMissing("A stored value is gone.", metadata={"digest": digest}) from None
        if seen.hexdigest() != digest:
            raise ArtefactDamaged("A stored value is damaged.", metadata={"digest": digest})
        into.flush()
        return size

    async def _read(self, key: str, digest: str) -> bytes:
        try:
            found = await self._objects.get_async(key)
            if found.meta["size"] > self._max_blob_bytes:
                raise ArtefactDamaged("A stored value is larger than any that was stored.")
            content = bytes(await found.bytes_async())
        except (NotFoundError, FileNotFoundError):
            raise ArtefactMissing("A stored value is gone.", metadata={"digest": digest}) from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise ArtefactDamaged("A stored value is damaged.", metadata={"digest": digest})
        return content

    async def _delete(self, prefix: str) -> int:
        deleted = 0
        async for found in self._objects.list(prefix):
            await self._objects.delete_async([each["path"] for each in found])
            deleted += len(found)
        if self._folder is not None:
            # What a writer that was killed has left is not listed, and neither are folders.
            await asyncio.to_thread(shutil.rmtree, self._folder / prefix, ignore_errors=True)
        return deleted

    async def _within(self, deadline_s: float, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(deadline_s):
                return await work
        except (BaseError, OSError, TimeoutError) as error:
            raise Unavailable(
                f"The artefact store does not do its work ({type(error).__name__}).",
                reason="ARTEFACTS_UNAVAILABLE",
                retry_after_s=1.0,
            ) from error


def open_artefacts(url: str, *, max_blob_bytes: int = MAX_BLOB_BYTES) -> ObjectArtefacts:
    """The store at ``file:///folder`` (created) or ``s3://bucket/prefix``.

    Credentials, region and endpoint of S3 come from the standard ``AWS_…`` variables.

    Raises:
        ConfigurationError: the URL is neither, or the folder cannot be used.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc and parts.path not in ("", "/"):
        folder = Path(unquote(parts.path))
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            local = LocalStore(folder)
        except (BaseError, OSError) as error:
            raise ConfigurationError(
                f"The folder of artefacts {folder} cannot be used ({type(error).__name__})."
            ) from error
        return ObjectArtefacts(local, folder=folder, max_blob_bytes=max_blob_bytes)
    if parts.scheme == "s3" and parts.netloc and not parts.query:
        try:
            bucket = S3Store(
                parts.netloc,
                prefix=parts.path.strip("/") or None,
                client_options={
                    "allow_http": True,  # without TLS only if the operator's endpoint says so
                    "connect_timeout": timedelta(seconds=_CONNECT_S),
                    "timeout": timedelta(seconds=_DEADLINE_S),
                },
                retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=_DEADLINE_S)},
            )
        except BaseError as error:
            raise ConfigurationError(
                f"The bucket {parts.netloc} cannot be used: see the AWS_… variables."
            ) from error
        return ObjectArtefacts(bucket, max_blob_bytes=max_blob_bytes)
    raise ConfigurationError(
        "The URL of artefacts must be file:///folder (three slashes) or s3://bucket/prefix."
    )
