"""kill -9 of the service and of its parsers, at any point of its work, with the real engines."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from documents_harness import READY
from documents_trials.killed import KILLED
from documents_trials.service import RealDocuments, real_documents
from sample_files.pdf import PdfPage, paragraph, pdf

from bos.documents.v1 import SearchFilter, SearchMode
from bos_chassis.telemetry import Telemetry
from bos_documents.context import ENTRIES
from bos_documents.index.embedded import EmbeddedIndex
from bos_errors import BosError
from bos_testkit.processes import is_dead

pytestmark = [pytest.mark.process, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("BOS_TEST_KILLS", "5"))
SEED = int(os.environ.get("BOS_TEST_SEED", "15"))
MOST_POINTS = 40
"""More than reading one of these documents has."""
HERE = Path(__file__).parents[1]
JOBS = "SELECT count(*) FROM jobs"
LOST = (BosError, grpc.aio.AioRpcError)


def _pdf(word: str) -> bytes:
    return pdf([PdfPage(paragraph([f"Apples of page {n} of {word}."])) for n in range(5)])


def _text(word: str) -> bytes:
    return "\n\n".join(f"# Row {n}\n\nApple {n} of {word}." for n in range(12)).encode()


KINDS: dict[str, Callable[[str], bytes]] = {"pdf": _pdf, "md": _text}


@dataclass
class Trial:
    """What was done, and what must be there."""

    dsn: str
    folder: Path
    chance: random.Random
    shape: dict[str, int] = field(default_factory=dict)
    """Passages of an undisturbed reading, by kind."""
    gone: set[str] = field(default_factory=set)
    """Names of documents whose deletion was asked for."""
    chunks: dict[str, set[str]] = field(default_factory=dict)
    """Chunk ids of documents, as they were first seen."""
    seen: Counter[str] = field(default_factory=Counter)
    uploads: int = 0

    @asynccontextmanager
    async def armed(self, at: int, what: str) -> AsyncIterator[RealDocuments]:
        """A service that is killed at that point."""
        begin = self.folder / "armed"
        for left in (begin, self.folder / KILLED):
            left.unlink(missing_ok=True)
        path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        more = {"KILL_AT": str(at), "KILL_WHAT": what, "KILL_FROM": str(begin), "PYTHONPATH": path}
        async with self.service(module="documents_trials.killed", more=more) as service:
            yield service

    @asynccontextmanager
    async def service(self, **options: object) -> AsyncIterator[RealDocuments]:
        """A service that gives no document up for the deaths of its owners."""
        async with real_documents(
            self.dsn, self.folder, max_attempts="10000", **options
        ) as service:
            yield service

    async def assert_nothing_is_half_visible(self, service: RealDocuments) -> None:
        """Passages that are found belong to documents that are ready, or were until now."""
        found = (await service.search("apples of the orchard", limit=100)).passages
        chunk_ids = [each.chunk.chunk_id for each in found]
        assert len(set(chunk_ids)) == len(chunk_ids)
        for each in await service.documents():
            if each.chunk_count:
                ids = set(await self.ids(service, each.document_id))
                known = self.chunks.setdefault(each.document_id, ids)
                mine = {p.chunk.chunk_id for p in found if p.chunk.document_id == each.document_id}
                assert mine <= known  # else it was deleted since

    async def ids(self, service: RealDocuments, document_id: str) -> list[str]:
        """Chunk ids of the reading that serves, in order."""
        rows = await service.rows(
            "SELECT c.chunk_id::text FROM chunks AS c JOIN documents AS d "
            "ON d.document_id = c.document_id AND d.serving = c.generation "
            "WHERE c.document_id = $1::text::uuid ORDER BY c.ordinal",
            document_id,
        )
        return [row[0] for row in rows]

    async def act(self, service: RealDocuments) -> None:
        """Upload, have read again, or delete a document; its answer may be lost."""
        ready = [each for each in await service.documents() if each.state == READY]
        what = self.chance.choice(
            ["upload", "upload", "reindex", "delete"] if ready else ["upload"]
        )
        self.seen[what] += 1
        if what == "upload":
            self.uploads += 1
            kind = self.chance.choice(list(KINDS))
            name = f"{self.uploads}.{kind}"
            await service.upload(KINDS[kind](f"tree{self.uploads}"), name)
            return
        chosen = self.chance.choice(ready)
        if what == "delete":
            self.gone.add(chosen.name)
            await service.delete(chosen.document_id)
        else:
            await service.reindex(chosen.document_id)


async def until_killed_or_idle(service: RealDocuments) -> None:
    """Wait until the service was killed or has nothing left to do."""
    async with asyncio.timeout(120):
        while not is_dead(service.pid) and await service.value(JOBS):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_kills_at_any_point_leave_documents_whole(postgres_dsn: str, tmp_path: Path) -> None:
    trial = Trial(postgres_dsn, tmp_path, random.Random(SEED))
    async with trial.service() as service:
        for kind, make in KINDS.items():
            found = await service.ready(make("model"), f"model.{kind}")
            trial.shape[kind] = found.chunk_count
        assert max(trial.shape.values()) > 1
    for _ in range(KILLS):
        what = trial.chance.choice(["service", "service", "service", "parsers"])
        async with trial.armed(trial.chance.randint(1, MOST_POINTS), what) as service:
            with suppress(*LOST):
                await trial.assert_nothing_is_half_visible(service)
                (tmp_path / "armed").touch()
                await trial.act(service)
            await until_killed_or_idle(service)
            killed = (tmp_path / KILLED).exists()
            trial.seen[f"{what} killed" if killed else f"{what} not killed"] += 1
    async with trial.service() as service:
        await assert_whole(trial, service)
    await assert_index_is_exact(trial, service)
    print(dict(trial.seen))
    assert trial.seen["service killed"] > 0


async def assert_whole(trial: Trial, service: RealDocuments) -> None:
    """Every document that was accepted is ready and complete; those that were deleted are gone."""
    for each in await service.documents():
        await service.until_ended(each.document_id)
    await service.until_idle()
    documents = await service.documents()
    assert len({each.name for each in documents}) == len(documents)
    assert not trial.gone & {each.name for each in documents}
    for each in documents:
        assert each.state == READY, each
        assert each.chunk_count == trial.shape[each.name.rpartition(".")[2]], each
        ids = await trial.ids(service, each.document_id)
        assert len(set(ids)) == len(ids) == each.chunk_count
        assert trial.chunks.get(each.document_id, set(ids)) == set(ids), "citations still hold"
        wanted = SearchFilter(document_ids=[each.document_id])
        mode = SearchMode.SEARCH_MODE_DENSE
        found = await service.search("apples", filter=wanted, mode=mode, limit=100)
        assert {passage.chunk.chunk_id for passage in found.passages} == set(ids)
    assert await service.value("SELECT count(*) FROM pages") == 0
    # A file without a row would be found by no one who deletes.
    known = {row[0] for row in await service.rows("SELECT document_id::text FROM documents")}
    stored = [path for path in service.files() if not any(key in str(path) for key in known)]
    assert stored == []


async def assert_index_is_exact(trial: Trial, service: RealDocuments) -> None:
    """As many vectors as passages, under each document's id."""
    rows = await service.rows(
        "SELECT d.user_id, d.model, d.document_id::text, count(*) FROM documents AS d "
        "JOIN chunks AS c USING (document_id) GROUP BY 1, 2, 3"
    )
    index = EmbeddedIndex(trial.folder / "index", Telemetry.for_tests().logger("index"))
    for user_id, model, document_id, chunks in rows:
        assert await index.count(user_id, model, document_id) == chunks + ENTRIES
    total = sum(row[3] + ENTRIES for row in rows)
    assert await index.count(rows[0][0], rows[0][1]) == total
    await index.close()
