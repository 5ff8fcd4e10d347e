"""gRPC servicer of workspaces for users, each for their own files. Translation only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from bos.files.v1 import (
    DeleteFileRequest,
    DeleteFileResponse,
    DownloadFileRequest,
    DownloadFileResponse,
    FileServiceServicer,
    GetFileRequest,
    GetFileResponse,
    ListFilesRequest,
    ListFilesResponse,
    UploadFileRequest,
    UploadFileResponse,
    WorkspaceUsage,
)
from bos_chassis.auth.callers import LOCAL_USER, current_principal
from bos_chassis.paging import decoded, encoded, word_patterns
from bos_errors import NotFound
from bos_files.workspaces.names import checked_name
from bos_files.workspaces.uploads import Uploads
from bos_files.workspaces.workspace import Workspaces
from bos_postgres.audit import By

SERVICE_NAME: Final = "bos.files.v1.FileService"
_DEFAULT_PAGE: Final = 50
_PART_BYTES: Final = 256 * 1024
_DOWNLOADS: Final = 16
"""Contents in memory at once; more downloads wait within their time."""


class FileServicer(FileServiceServicer):
    """Implements ``bos.files.v1.FileService``.

    Args:
        workspaces: Files of users.
        uploads: Takes uploads in.
    """

    def __init__(self, workspaces: Workspaces, uploads: Uploads) -> None:
        self._workspaces = workspaces
        self._uploads = uploads
        self._downloads = asyncio.Semaphore(_DOWNLOADS)

    async def ListFiles(self, request: ListFilesRequest, context: Any) -> ListFilesResponse:
        """A page of the caller's files, and the usage of the workspace."""
        user_id, size = _user(), request.page_size or _DEFAULT_PAGE
        store = self._workspaces.store
        after = decoded(request.page_token) if request.page_token else ""
        found = await store.listed(user_id, after, size + 1, word_patterns(request.query))
        held, quota = await store.held(user_id), store.quota
        return ListFilesResponse(
            files=[each.message() for each in found[:size]],
            next_page_token=encoded(found[size - 1].name) if len(found) > size else "",
            usage=WorkspaceUsage(
                files=held.files,
                max_files=quota.files,
                size_bytes=held.size_bytes,
                max_bytes=quota.size_bytes,
            ),
        )

    async def GetFile(self, request: GetFileRequest, context: Any) -> GetFileResponse:
        """One of the caller's files, with its versions."""
        versions = await self._workspaces.store.versions(_user(), checked_name(request.name))
        # Renumbered versions of a repeated step keep their order, so the newest is the current one.
        found = versions[0].message()
        found.versions.extend(each.version_message() for each in versions)
        return GetFileResponse(file=found)

    async def DownloadFile(
        self, request: DownloadFileRequest, context: Any
    ) -> AsyncIterator[DownloadFileResponse]:
        """The content of a version, in parts."""
        user_id, name = _user(), checked_name(request.name)
        versions = await self._workspaces.store.versions(user_id, name)
        wanted = request.version or versions[0].number
        stored = next((each for each in versions if each.number == wanted), None)
        if stored is None:
            raise NotFound("There is no such version of this file.", reason="VERSION_NOT_FOUND")
        async with self._downloads:
            content = await self._workspaces.content(user_id, stored)
            yield DownloadFileResponse(file=stored.message(), content=content[:_PART_BYTES])
            for start in range(_PART_BYTES, len(content), _PART_BYTES):
                yield DownloadFileResponse(content=content[start : start + _PART_BYTES])

    async def UploadFile(
        self, request_iterator: AsyncIterator[UploadFileRequest], context: Any
    ) -> UploadFileResponse:
        """A file more, or another version of one."""
        committed = await self._uploads.receive(request_iterator, _user(), _by())
        return UploadFileResponse(file=committed.stored.message(), existed=committed.existed)

    async def DeleteFile(self, request: DeleteFileRequest, context: Any) -> DeleteFileResponse:
        """A file less, with all its versions."""
        await self._workspaces.delete(_user(), request.name, _by())
        return DeleteFileResponse()


def _user() -> str:
    """The caller's user id; all callers are one user where authentication is off."""
    principal = current_principal()
    return LOCAL_USER if principal is None else principal.user_id


def _by() -> By:
    return By.of(current_principal())
