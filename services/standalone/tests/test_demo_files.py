"""The sample company's files are uploaded for the local user, once per data folder."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from bos.files.v1 import (
    FileServiceServicer,
    UploadFileResponse,
    add_FileServiceServicer_to_server,
)
from bos_chassis.telemetry import Telemetry
from bos_demo.uploads import sample_uploads
from bos_standalone.sample.files import upload_sample

KEY = "key-of-the-local-user"


@dataclass
class Workspace(FileServiceServicer):
    """Keeps what is uploaded, unless it is away."""

    files: dict[str, bytes] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    away: bool = False

    async def UploadFile(self, parts: Any, context: Any) -> UploadFileResponse:
        if self.away:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no")
        self.keys.add(dict(context.invocation_metadata())["authorization"])
        name, content = "", b""
        async for part in parts:
            name = part.upload.name or name
            content += part.content
        self.files[name] = content
        return UploadFileResponse()


@pytest.fixture
async def workspace() -> AsyncIterator[tuple[Workspace, str]]:
    servicer = Workspace()
    server = grpc.aio.server()
    add_FileServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield servicer, f"127.0.0.1:{port}"
    await server.stop(None)


async def test_first_start_alone_uploads_files_of_the_local_user(
    workspace: tuple[Workspace, str], tmp_path: Path
) -> None:
    service, target = workspace
    telemetry = Telemetry.for_tests("standalone")

    assert await upload_sample(target, KEY, tmp_path, telemetry)
    assert service.files == sample_uploads()
    assert service.files["spares-2026.csv"].startswith(b"SKU,Product,Unit,List price in Rs.")
    assert service.keys == {f"Bearer {KEY}"}

    service.files.clear()  # deleted by the user
    assert await upload_sample(target, KEY, tmp_path, telemetry)
    assert service.files == {}

    (tmp_path / "demo-files").write_text("digest of other files\n")
    assert await upload_sample(target, KEY, tmp_path, telemetry)
    assert service.files == sample_uploads()


async def test_unavailable_workspace_is_logged_and_uploaded_to_later(
    workspace: tuple[Workspace, str], tmp_path: Path
) -> None:
    service, target = workspace
    service.away = True
    telemetry = Telemetry.for_tests("standalone")

    assert not await upload_sample(target, KEY, tmp_path, telemetry)
    assert [each["event"] for each in telemetry.logs] == ["sample files not uploaded"]
    assert not (tmp_path / "demo-files").exists()

    service.away = False
    assert await upload_sample(target, KEY, tmp_path, telemetry)
    assert service.files == sample_uploads()
