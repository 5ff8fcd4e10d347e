"""A documents service as its own process, with its real parsers, embedding model and index."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc
from documents_harness import Caller

from bos.documents.v1 import Document, DocumentsServiceStub
from bos_chassis.telemetry import Telemetry
from bos_errors import DeadlineExceeded
from bos_testkit.processes import service_process


@dataclass
class RealDocuments(Caller):
    """Calls a service that is a process."""

    pid: int = 0
    log: Path | None = None

    def kill(self) -> None:
        """End the service as a lack of memory or power does."""
        os.kill(self.pid, signal.SIGKILL)

    async def until_ended(self, document_id: str) -> Document:
        """As for any service; what real engines do may take longer than one stream."""
        while True:
            with suppress(DeadlineExceeded):
                return await super().until_ended(document_id)

    def logged(self) -> str:
        return self.log.read_text() if self.log is not None else ""

    def stored(self) -> list[Path]:
        """Everything that the service keeps on disk but its locks: index, files, spool."""
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return [path for path in files if path != self.log and "lock" not in path.name]

    def holding(self, text: bytes) -> list[Path]:
        """Files of the service that hold ``text``."""
        return [path for path in self.stored() if text in path.read_bytes()]


def environment(dsn: str, folder: Path, **settings: str) -> dict[str, str]:
    """Settings of a service whose files are all below ``folder``."""
    spool = folder / "spool"
    spool.mkdir(parents=True, exist_ok=True)
    own = {
        "STORE_URL": dsn,
        "FILES_URL": (folder / "files").as_uri(),
        "INDEX_FOLDER": str(folder / "index"),
        "SPOOL_FOLDER": str(spool),
        "POLL_S": "0.2",
        "RETRY_FIRST_S": "0.01",
        "RETRY_CAP_S": "0.2",
        "LEASE_S": "2",
        "DESCRIBE_TIMEOUT_S": "5",
        **{name.upper(): value for name, value in settings.items()},
    }
    return {f"BOS_DOCUMENTS_{name}": value for name, value in own.items()}


@asynccontextmanager
async def real_documents(
    dsn: str,
    folder: Path,
    *,
    module: str = "bos_documents",
    more: dict[str, str] | None = None,
    **settings: str,
) -> AsyncIterator[RealDocuments]:
    """The service, until the block is left.

    Args:
        dsn: Its database.
        folder: Where all its files go.
        module: What is started.
        more: Further variables of the environment.
        settings: Of the service, in place of ours.
    """
    log = folder / "service.log"
    variables = {**environment(dsn, folder, **settings), **(more or {})}
    async with (
        service_process(module, variables, log) as running,
        grpc.aio.insecure_channel(running.address) as channel,
    ):
        yield RealDocuments(
            DocumentsServiceStub(channel),
            None,
            Telemetry.for_tests("documents"),
            dsn,
            folder,
            address=running.address,
            pid=running.pid,
            log=log,
        )
