"""A process that writes a file and kills itself before or after its content is stored."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from bos_artefacts import open_artefacts
from bos_chassis.telemetry import Telemetry
from bos_files.service import READER, SCHEMA
from bos_files.workspaces.store import Quota, Store
from bos_files.workspaces.workspace import Workspaces
from bos_postgres import open_database
from bos_postgres.audit import By


async def main(dsn: str, folder: str, place: str) -> None:
    async with (
        open_database(dsn, schema=SCHEMA, max_size=1) as pool,
        open_database(dsn, schema=SCHEMA, max_size=1, role=READER, stateless=True) as readers,
    ):
        blobs: Any = open_artefacts((Path(folder) / "workspace").as_uri())
        put = blobs.put

        async def deadly(*given: Any) -> None:
            if place == "after put":
                await put(*given)
            os.kill(os.getpid(), signal.SIGKILL)

        blobs.put = deadly
        store = Store(pool, readers, Quota(files=9, size_bytes=10_000, versions=3))
        workspaces = Workspaces(store, blobs, 10_000, Telemetry.for_tests("files"))
        await workspaces.write("ada", "a.txt", b"lost", By("ada"), origin="upload", tainted=False)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
