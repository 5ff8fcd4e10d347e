"""A documents service as a process, which kills itself at a place that the environment names."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from documents_doubles import engines
from documents_harness import documents_settings

from bos_chassis.telemetry import Telemetry
from bos_documents.ingest import stages
from bos_documents.service import serve


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(place: str, used: Any) -> None:
    """``before STAGE``, ``after STAGE``, ``page N``, ``embed N``, ``upsert N``, ``put``."""
    what, _, which = place.partition(" ")
    run = stages.Stages.run

    async def armed(self: Any, job: Any) -> Any:
        if (what, which) == ("before", job.stage):
            die()
        following = await run(self, job)
        if (what, which) == ("after", job.stage):
            die()
        return following

    stages.Stages.run = armed  # type: ignore[method-assign]
    if what == "page":

        async def before_page(number: int) -> None:
            if number == int(which):
                die()

        used.parser.before_page = before_page
    if what == "embed":
        embed = used.embedder.embed_passages

        async def embed_passages(texts: Any) -> Any:
            if used.embedder.embedded >= int(which):
                die()
            return await embed(texts)

        used.embedder.embed_passages = embed_passages
    if what == "upsert":
        upsert = used.index.upsert

        async def upserted(*given: Any) -> None:
            await upsert(*given)
            if used.index.upserted >= int(which):
                die()

        used.index.upsert = upserted
    if what == "put":
        from bos_documents import files

        async def put(*_: Any) -> None:
            die()

        files.DocumentFiles.put = put  # type: ignore[method-assign]


async def main(dsn: str, folder: str, place: str) -> None:
    used = engines(Path(folder))
    arm(place, used)
    settings = documents_settings(dsn, Path(folder), lease_s=1.0)
    telemetry = Telemetry.for_tests("documents")
    async with serve(settings, telemetry, models=None, engines=used) as server:
        print(server.address, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
