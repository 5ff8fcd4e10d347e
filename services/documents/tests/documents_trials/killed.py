"""``python -m bos_documents`` that kills itself, or its parser processes, at a point of its work.

The environment says where: ``KILL_AT`` is the number of the point, ``KILL_WHAT`` is ``service`` or
``parsers``, and counting begins once the file ``KILL_FROM`` exists. Points are, in the order in
which they come: each transaction of a job before and after its commit, and each change of the index
or of the stored files once it is done.
"""

import os
import runpy
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import bos_chassis  # noqa: F401  # before anything imports gRPC: see there
from bos_documents.files import DocumentFiles
from bos_documents.index.embedded import EmbeddedIndex
from bos_documents.store.jobs import Jobs

KILLED = "killed"
"""The file beside ``KILL_FROM`` that says that something was killed."""


class Points:
    """Counts points, and kills at one."""

    def __init__(self, at: int, what: str, begin: Path) -> None:
        self._left = at
        self._what = what
        self._begin = begin

    def passed(self) -> None:
        """One more point was reached."""
        if self._left <= 0 or not self._begin.exists():
            return
        self._left -= 1
        if not self._left:
            for pid in [os.getpid()] if self._what == "service" else _parsers():
                self._begin.with_name(KILLED).touch()
                os.kill(pid, signal.SIGKILL)


def _parsers() -> list[int]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children]


def arm(points: Points) -> None:
    """Make the service count its points."""
    step = Jobs.step

    @asynccontextmanager
    async def counted(self: Jobs, job: Any) -> AsyncIterator[Any]:
        async with step(self, job) as connection:
            yield connection
            points.passed()
        points.passed()

    Jobs.step = counted  # type: ignore[method-assign]
    for kind, name in (
        *((EmbeddedIndex, name) for name in ("upsert", "delete_document", "delete_chunks")),
        *((DocumentFiles, name) for name in ("put", "delete")),
    ):
        _count_after(kind, name, points)


def _count_after(kind: type, name: str, points: Points) -> None:
    done = getattr(kind, name)

    async def counted(*given: Any, **more: Any) -> Any:
        result = await done(*given, **more)
        points.passed()
        return result

    setattr(kind, name, counted)


if __name__ == "__main__":
    given = os.environ
    arm(Points(int(given["KILL_AT"]), given["KILL_WHAT"], Path(given["KILL_FROM"])))
    runpy.run_module("bos_documents", run_name="__main__")
