"""Workspaces of the isolation suite: the files agent, and what people have there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.files.v1 import FileServiceStub, FileUpload, UploadFileRequest
from bos_files.service import serve
from bos_files.settings import FilesSettings

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    import grpc

    from bos_chassis.server import GrpcServer
    from bos_chassis.settings import AuthSettings, ServerSettings
    from bos_chassis.telemetry import Telemetry

_TIMEOUT_S = 60.0


def files_for(
    dsn: str, folder: Path, server: ServerSettings, auth: AuthSettings, telemetry: Telemetry
) -> AbstractAsyncContextManager[GrpcServer]:
    """The service, without a model."""
    settings = FilesSettings.load(
        server=server, auth=auth, store_url=dsn, workspace_url=(folder / "files").as_uri()
    )
    return serve(settings, telemetry.named("files"), models=None)


async def give_file(channel: grpc.aio.Channel, token: str, name: str, text: str) -> str:
    """The name of a file of the token's holder."""
    parts = [
        UploadFileRequest(upload=FileUpload(name=name)),
        UploadFileRequest(content=text.encode()),
    ]
    uploaded = await FileServiceStub(channel).UploadFile(
        iter(parts), metadata=(("authorization", f"Bearer {token}"),), timeout=_TIMEOUT_S
    )
    return str(uploaded.file.name)
