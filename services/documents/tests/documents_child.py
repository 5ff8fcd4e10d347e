"""A documents service as a process, which kills itself at a place that the environment names."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from documents_doubles import engines
from documents_harness import documents_settings

from bos_chassis.telemetry import Telemetry
from bos_documents.files import DocumentFiles
from bos_documents.ingest.stages import Stages
from bos_documents.service import serve


def die_around(
    holder: Any,
    name: str,
    *,
    before: Callable[..., bool] = lambda *_: False,
    after: Callable[..., bool] = lambda *_: False,
) -> None:
    """Kill this process where a method is called, or has ended, and the condition holds."""
    method = getattr(holder, name)

    async def armed(*given: Any) -> Any:
        if before(*given):
            os.kill(os.getpid(), signal.SIGKILL)
        result = await method(*given)
        if after(*given):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(holder, name, armed)


def arm(place: str, used: Any) -> None:
    """``before STAGE``, ``after STAGE``, ``page N``, ``embed N``, ``upsert N``, ``put``."""
    what, _, which = place.partition(" ")
    embedder, index = used.embedder, used.index
    match what:
        case "before":
            die_around(Stages, "run", before=lambda _, job: job.stage == which)
        case "after":
            die_around(Stages, "run", after=lambda _, job: job.stage == which)
        case "page":
            die_around(used.parser, "before_page", before=lambda number: number == int(which))
        case "embed":
            embedded = lambda _: embedder.embedded >= int(which)  # noqa: E731
            die_around(embedder, "embed_passages", before=embedded)
        case "upsert":
            die_around(index, "upsert", after=lambda *_: index.upserted >= int(which))
        case "put":
            die_around(DocumentFiles, "put", before=lambda *_: True)


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
