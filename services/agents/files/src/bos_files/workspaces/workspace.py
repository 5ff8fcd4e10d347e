"""Workspaces of users: files under names, with versions; blobs by digest behind them."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from uuid import UUID

from bos_artefacts import ArtefactDamaged, ArtefactMissing, Owner
from bos_errors import BosError, InvalidArgument, NotFound
from bos_files.media_types import sniffed
from bos_files.workspaces.names import checked_name
from bos_files.workspaces.rows import Writing
from bos_files.workspaces.store import Committed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos_artefacts import ArtefactStore
    from bos_chassis.telemetry import Telemetry
    from bos_files.workspaces.rows import Origin, Stored
    from bos_files.workspaces.store import Store
    from bos_postgres.audit import By

_AT_ONCE: Final = 100


class Workspaces:
    """Reads and writes files of users.

    Args:
        store: Their rows.
        blobs: Their content, whose blobs are those of workspaces and nothing else.
        max_file_bytes: Largest file.
        telemetry: For the log.
    """

    def __init__(
        self, store: Store, blobs: ArtefactStore, max_file_bytes: int, telemetry: Telemetry
    ) -> None:
        self.store = store
        self.max_file_bytes = max_file_bytes
        self._blobs = blobs
        self._log = telemetry.logger("bos.files")

    async def write(
        self,
        user_id: str,
        name: str,
        content: bytes,
        by: By,
        *,
        origin: Origin,
        tainted: bool,
        run_id: str = "",
        step_key: str = "",
    ) -> Committed:
        """Make ``content`` the current version of a file; the same content changes nothing.

        Raises:
            InvalidArgument: the name cannot be one, or the content is too large.
            ResourceExhausted: the user's quota is used up; names the limit.
            Unavailable: store or database do not answer.
        """
        name = checked_name(name)
        if len(content) > self.max_file_bytes:
            raise InvalidArgument(
                f"A file may have {self.max_file_bytes} bytes, and this one has {len(content)}.",
                reason="FILE_TOO_LARGE",
            )
        writing = Writing(
            name=name,
            digest=hashlib.sha256(content).hexdigest(),
            size_bytes=len(content),
            media_type=sniffed(content, name),
            origin=origin,
            tainted=tainted,
            run_id=run_id,
            step_key=step_key,
        )
        begun = await self.store.begin(user_id, writing)
        if not isinstance(begun, UUID):
            return Committed(begun, existed=True)
        try:
            await self._blobs.put(Owner(user_id, begun), content)
            committed = await self.store.commit(user_id, begun, writing, by)
        except BaseException:
            # It would count against the quota until the next look at such rows.
            await asyncio.shield(self.discard(user_id, [begun]))
            raise
        await self.discard(user_id, committed.displaced)
        return committed

    async def content(self, user_id: str, stored: Stored) -> bytes:
        """The content of a version, checked against its digest.

        Raises:
            NotFound: it was deleted meanwhile, or the store has lost it.
            Unavailable: the store does not answer.
        """
        try:
            return await self._blobs.get(Owner(user_id, stored.version_id), stored.digest)
        except (ArtefactMissing, ArtefactDamaged) as error:
            self._log.error("content of a file is lost", reason=error.reason)
            raise NotFound(
                "The content of this file is lost; write or upload it again.", reason="FILE_LOST"
            ) from error

    async def delete(self, user_id: str, name: str, by: By, *, digest: str | None = None) -> None:
        """Delete a file with all its versions; blobs that cannot be deleted now go later.

        Raises:
            NotFound: there is none, or its content is not that of ``digest``.
        """
        dropped = await self.store.delete(user_id, checked_name(name), by, digest=digest)
        await self.discard(user_id, dropped)

    async def discard(self, user_id: str, versions: Iterable[UUID]) -> None:
        """Delete blobs and rows of versions that belong to no file, as far as that works now."""
        for version_id in versions:
            with suppress(BosError):
                if await self.store.claim(version_id):
                    await self._blobs.delete(Owner(user_id, version_id))
                    await self.store.gone(version_id)

    async def collect(self) -> int:
        """Delete blobs left by killed writers and failed deletions; return their number."""
        found = await self.store.abandoned(_AT_ONCE)
        for version_id, user_id in found:
            await self.discard(user_id, [version_id])
        return len(found)

    async def collecting(self, every_s: float) -> None:
        """Collect from time to time, until cancelled."""
        while True:
            try:
                await self.collect()
            except BosError as error:
                self._log.warning("collection put off", error=error.reason)
            except Exception:
                self._log.exception("collection failed")
            await asyncio.sleep(every_s)
