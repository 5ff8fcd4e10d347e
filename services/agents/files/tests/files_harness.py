"""The files service, called by a user and by steps of runs."""

from pathlib import Path
from typing import Any

from bos.agent.v1 import TaskMetadata
from bos.files.v1 import (
    DeleteFileRequest,
    DownloadFileRequest,
    FileServiceStub,
    FileUpload,
    GetFileRequest,
    ListFilesRequest,
    UploadFileRequest,
)
from bos_chassis.channels import translate_rpc_errors
from bos_files.service import SCHEMA
from bos_postgres import connect
from bos_testkit.fixtures.agent_harness import AgentHarness, StepOutcome

ADA_KEY = "the-key-of-ada-0123"


class Files(AgentHarness):
    dsn: str
    folder: Path
    key: str = ""
    steps: int = 0

    @property
    def files(self) -> Any:
        return FileServiceStub(self.channel)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.key}"),) if self.key else ()

    async def do(
        self,
        task: str = "Do it",
        inputs: Any = None,
        *,
        step_key: str = "",
        user: str = "local",
        **arguments: Any,
    ) -> StepOutcome:
        self.steps += 1
        key = step_key or f"run-1/0/{self.steps}"
        metadata = TaskMetadata(user_id=user, run_id="run-1", step_key=key)
        return await super().do(task, inputs, metadata=metadata, **arguments)

    async def call(self, method: str, request: Any) -> Any:
        with translate_rpc_errors():
            return await getattr(self.files, method)(request, metadata=self.metadata, timeout=60)

    async def upload(self, name: str, content: bytes, piece: int = 64 * 1024) -> Any:
        parts = [UploadFileRequest(upload=FileUpload(name=name))]
        parts += [
            UploadFileRequest(content=content[start : start + piece])
            for start in range(0, len(content), piece)
        ]
        with translate_rpc_errors():
            return await self.files.UploadFile(iter(parts), metadata=self.metadata, timeout=60)

    async def listed(self) -> list[Any]:
        return list((await self.call("ListFiles", ListFilesRequest(page_size=200))).files)

    async def get(self, name: str) -> Any:
        return (await self.call("GetFile", GetFileRequest(name=name))).file

    async def delete(self, name: str) -> None:
        await self.call("DeleteFile", DeleteFileRequest(name=name))

    async def download(self, name: str, version: int = 0) -> bytes:
        request = DownloadFileRequest(name=name, version=version)
        with translate_rpc_errors():
            call = self.files.DownloadFile(request, metadata=self.metadata, timeout=60)
            return b"".join([part.content async for part in call])

    async def rows(self, query: str) -> list[Any]:
        async with connect(self.dsn, schema=SCHEMA) as session:
            return list(await session.fetch(query))

    def blobs(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]
