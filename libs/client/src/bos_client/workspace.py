"""Client of workspaces: list, download, upload, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc

from bos.files.v1 import (
    DeleteFileRequest,
    DownloadFileRequest,
    FileServiceStub,
    FileUpload,
    ListFilesRequest,
    UploadFileRequest,
)
from bos_client.calling import ServiceClient
from bos_client.transport import failure_of
from bos_errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos.files.v1 import (
        File,
        FileServiceAsyncStub,
        ListFilesResponse,
        UploadFileResponse,
    )

_PART_BYTES: Final = 256 * 1024
_TRANSFER_TIMEOUT_S: Final = 300.0


class WorkspaceClient(ServiceClient):
    """A client of the file service; see :class:`ServiceClient`."""

    async def files(self, *, page_size: int = 0, page_token: str = "") -> ListFilesResponse:
        """A page of the caller's files, in the order of their names."""
        request = ListFilesRequest(page_size=page_size, page_token=page_token)
        return await self._unary(self._stub.ListFiles, request)

    async def download(self, name: str, *, version: int = 0) -> tuple[File, bytes]:
        """A file and its content, whole.

        Args:
            name: Its name.
            version: Number of a kept version; 0 is the current one.
        """
        request = DownloadFileRequest(name=name, version=version)
        call = self._stub.DownloadFile(
            request, timeout=_TRANSFER_TIMEOUT_S, metadata=await self._metadata()
        )
        content, file = bytearray(), None
        try:
            async for part in call:
                file = part.file if file is None else file
                content += part.content
        except grpc.RpcError as error:
            raise failure_of(error) from error
        finally:
            call.cancel()
        if file is None or file.size_bytes != len(content):
            raise Unavailable("The file ended before all of it was received.")
        return file, bytes(content)

    async def upload(self, name: str, content: bytes) -> UploadFileResponse:
        """Put a file into the workspace; the same content again changes nothing."""

        async def parts() -> AsyncIterator[UploadFileRequest]:
            yield UploadFileRequest(upload=FileUpload(name=name))
            for start in range(0, len(content), _PART_BYTES):
                yield UploadFileRequest(content=content[start : start + _PART_BYTES])

        try:
            return await self._stub.UploadFile(
                parts(), timeout=_TRANSFER_TIMEOUT_S, metadata=await self._metadata()
            )
        except grpc.RpcError as error:
            raise failure_of(error) from error

    async def delete(self, name: str) -> None:
        """Delete a file with all its versions."""
        await self._unary(self._stub.DeleteFile, DeleteFileRequest(name=name))

    @property
    def _stub(self) -> FileServiceAsyncStub:
        return FileServiceStub(self._channel)
