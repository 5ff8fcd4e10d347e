"""Client of what people do with their account as a whole: delete it, take everything along."""

from __future__ import annotations

import zipfile
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING

import grpc

from bos.identity.v1 import AccountServiceStub, DeleteAccountRequest, ExportAccountRequest
from bos_client.calling import ServiceClient
from bos_errors import Unavailable, from_rpc_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bos.identity.v1 import AccountServiceAsyncStub, ExportAccountResponse

_EXPORT_S = 600.0


class AccountClient(ServiceClient):
    """A client of identity for the caller's own account; see :class:`ServiceClient`."""

    async def close_account(self, password: str = "") -> None:
        """Close the account for good; it is deleted with everything of it.

        Args:
            password: Of the account; empty for one that has none, whose owner has signed in by the
                OpenID provider just now.

        Raises:
            BosError: ``PASSWORD_REQUIRED`` as its reason if the account has a password and none is
                given; ``SIGN_IN_NOT_FRESH`` if it has none, and the sign-in is too long ago.
        """
        request = DeleteAccountRequest(current_password=password)
        await self._unary(self._stub.DeleteAccount, request)

    async def export(self) -> AsyncIterator[ExportAccountResponse]:
        """Everything that services hold of the caller; parts of one file follow each other."""
        call = self._stub.ExportAccount(
            ExportAccountRequest(), timeout=_EXPORT_S, metadata=await self._metadata()
        )
        try:
            async for part in call:
                yield part
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        finally:
            call.cancel()

    @property
    def _stub(self) -> AccountServiceAsyncStub:
        return AccountServiceStub(self._channel)


async def write_archive(parts: AsyncIterator[ExportAccountResponse], file: Path) -> int:
    """Write an export into a new zip file, a part at a time; returns how many files it holds.

    What was written is removed again if the export is broken off.

    Raises:
        BosError: as the export.
        FileExistsError: the file is there already.
        OSError: it cannot be written.
    """
    files = 0
    with file.open("xb") as raw:
        try:
            with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
                path, entry = "", None
                async for part in parts:
                    if part.path != path:
                        if entry is not None:
                            entry.close()
                        path, files = part.path, files + 1
                        entry = _entry(archive, path)
                    assert entry is not None
                    entry.write(part.content)
                if entry is not None:
                    entry.close()
        except BaseException:
            file.unlink(missing_ok=True)  # noqa: ASYNC240  One entry of a folder.
            raise
    return files


def _entry(archive: zipfile.ZipFile, path: str) -> IO[bytes]:
    # An archive must not lead its reader elsewhere when unpacked.
    if not path or path.startswith("/") or "\\" in path or ".." in PurePosixPath(path).parts:
        raise Unavailable("The export names a file that it must not name; nothing was written.")
    return archive.open(path, "w", force_zip64=True)
