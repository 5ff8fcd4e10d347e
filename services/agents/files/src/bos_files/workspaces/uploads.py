"""Uploads into a workspace: bounded in size, number and time, whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

from bos.files.v1 import UploadFileRequest
from bos_chassis.concurrency.user_places import Full, UserPlaces
from bos_errors import BosError, DeadlineExceeded, InvalidArgument, ResourceExhausted
from bos_files.metrics import FilesMetrics
from bos_files.settings import FilesSettings
from bos_files.workspaces.names import checked_name
from bos_files.workspaces.store import Committed
from bos_files.workspaces.workspace import Workspaces
from bos_postgres.audit import By

_SHARE: Final = 4
"""One user may have this part of all places, and one at least."""


class Uploads:
    """Receives uploads of users.

    Args:
        workspaces: Where they go.
        settings: Bounds.
        metrics: Counts outcomes.
    """

    def __init__(
        self, workspaces: Workspaces, settings: FilesSettings, metrics: FilesMetrics
    ) -> None:
        self._workspaces = workspaces
        self._settings = settings
        self._metrics = metrics
        self._places = UserPlaces(settings.max_uploads, max(1, settings.max_uploads // _SHARE))

    async def receive(
        self, parts: AsyncIterator[UploadFileRequest], user_id: str, by: By
    ) -> Committed:
        """Store an upload.

        Raises:
            InvalidArgument: the parts are not in order, or the file is too large.
            ResourceExhausted: the user's quota, or this replica's places, are used up.
            DeadlineExceeded: it took too long.
        """
        outcome = "broken_off"
        try:
            with self._place(user_id):
                async with asyncio.timeout(self._settings.upload_timeout_s):
                    name, content = await self._received(parts)
                    # Uploads may hold text of any author, so steps that read them are tainted.
                    committed = await self._workspaces.write(
                        user_id, name, content, by, origin="upload", tainted=True
                    )
            outcome = "existed" if committed.existed else "stored"
        except TimeoutError:
            outcome = "refused"
            raise DeadlineExceeded("The upload took too long.", reason="UPLOAD_TOO_SLOW") from None
        except BosError:
            outcome = "refused"
            raise
        finally:
            self._metrics.uploads.labels(outcome).inc()
        return committed

    async def _received(self, parts: AsyncIterator[UploadFileRequest]) -> tuple[str, bytes]:
        name, content = "", bytearray()
        async for part in parts:
            if not name:
                if part.WhichOneof("part") != "upload":
                    break
                name = checked_name(part.upload.name, "upload.name")
                continue
            if part.WhichOneof("part") != "content":
                raise InvalidArgument.field("upload", "comes once, before all content")
            content += part.content
            if len(content) > self._settings.max_file_bytes:
                raise InvalidArgument(
                    f"A file may have {self._settings.max_file_bytes} bytes.",
                    reason="FILE_TOO_LARGE",
                )
        if not name:
            raise InvalidArgument.field("upload", "must come first")
        return name, bytes(content)

    @contextmanager
    def _place(self, user_id: str) -> Iterator[None]:
        if full := self._places.full_for(user_id):
            raise ResourceExhausted(
                "You upload too many files at once; wait for one of them to end."
                if full is Full.USER
                else "Too many files are uploaded at the moment; try again shortly.",
                reason="UPLOAD_LIMIT",
                retry_after_s=1.0,
            )
        with self._places.taken(user_id), self._metrics.uploads_open.track_inprogress():
            yield
