"""Stages of ingestion: each can be repeated, and goes on where it was interrupted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from bos_artefacts import ArtefactDamaged, ArtefactMissing
from bos_documents.context import ENTRIES, in_context
from bos_documents.files import DocumentKey
from bos_documents.index.port import IndexedChunk
from bos_documents.ingest.rules import Excerpt, known_date, one_line
from bos_documents.parsing.blocks import PageText
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.store import readings
from bos_documents.store.documents import USER_LOCK
from bos_documents.store.jobs import Job, Stage, advance, announce, finish
from bos_documents.store.rows import MAX_NOTES, MAX_PAGES_WITHOUT_TEXT
from bos_errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import asyncpg

    from bos_documents.files import DocumentFiles, Spool
    from bos_documents.ingest.describing import Describer
    from bos_documents.metrics import DocumentsMetrics
    from bos_documents.parsing.blocks import DocumentInfo, Page
    from bos_documents.ports import Engines
    from bos_documents.settings import DocumentsSettings
    from bos_documents.store.jobs import Connection, Jobs

_PAGES_AT_ONCE: Final = 64
_EXCERPT_CHUNKS: Final = 60
_EXCERPT_CHARS: Final = 12_000
_MAX_NOTE_CHARS: Final = 500
_SECTION_SEPARATOR: Final = " > "

_FILE = "SELECT name, digest FROM documents WHERE document_id = $1"
_PARSING = """
UPDATE documents SET state = 'parsing', attempts = $2, pages_parsed = $3
WHERE document_id = $1
"""
_OTHER_PAGES = """
SELECT coalesce(sum(page_count), 0)::bigint FROM documents
WHERE user_id = $1 AND document_id <> $2 AND state NOT IN ('failed', 'deleting')
"""
_OPENED = """
UPDATE documents SET media_type = $2, page_count = $3, pages_without_text = CASE
    WHEN $4 = 0 THEN '{}' ELSE pages_without_text END
WHERE document_id = $1
"""
_PARSED = """
UPDATE documents SET pages_parsed = $2, pages_without_text = CASE
    WHEN $3 AND cardinality(pages_without_text) < $4 THEN array_append(pages_without_text, $2)
    ELSE pages_without_text END
WHERE document_id = $1
"""
_ALIVE = "UPDATE jobs SET deaths = 0 WHERE document_id = $1"
_CHUNKED = """
UPDATE documents SET state = 'indexing', chunks_total = $2, chunks_indexed = 0
WHERE document_id = $1
"""
_INDEXED = "UPDATE documents SET chunks_indexed = $2 WHERE document_id = $1"
_GIVEN = """
SELECT name, media_type, page_count, given_type, given_date, description, document_type, topics,
       document_date, notes, serving, serving_chunks, model
FROM documents WHERE document_id = $1
"""
_PUBLISH = """
UPDATE documents
SET state = CASE WHEN $9 THEN state ELSE 'ready' END, serving = $2, serving_chunks = $3, model = $4,
    description = $5, document_type = $6, topics = $7, document_date = $8, notes = $10,
    checked_at = now()
WHERE document_id = $1
"""
_DROP_PAGES = "DELETE FROM pages WHERE document_id = $1"
_STALE = """
SELECT DISTINCT chunk_id FROM chunks AS c WHERE document_id = $1 AND generation <> $2
    AND ($3 OR NOT EXISTS (SELECT FROM chunks AS s WHERE s.document_id = $1
                           AND s.generation = $2 AND s.chunk_id = c.chunk_id))
"""
_DROP_STALE = "DELETE FROM chunks WHERE document_id = $1 AND generation <> $2"
_OF_MODEL = """
SELECT EXISTS (SELECT FROM documents WHERE user_id = $1 AND model = $2 AND serving > 0)
    OR EXISTS (SELECT FROM jobs WHERE user_id = $1 AND model = $2)
"""
_CHECKED = "UPDATE documents SET checked_at = now() WHERE document_id = $1"
_REJECT = """
UPDATE documents
SET state = CASE WHEN serving > 0 THEN 'ready' ELSE 'failed' END,
    failure_reason = $2, failure_message = $3, attempts = $4,
    notes = CASE WHEN serving > 0 THEN (ARRAY['Reading it again failed: ' || $3] || notes)[1:20]
                 ELSE notes END,
    chunks_total = serving_chunks, chunks_indexed = serving_chunks
WHERE document_id = $1
"""
_QUIET = "UPDATE jobs SET quiet = true, generation = $2 WHERE document_id = $1"
_REMOVE = "DELETE FROM documents WHERE document_id = $1"


class IndexIncomplete(Unavailable):
    """The index holds fewer chunks than it was given."""

    default_reason = "INDEX_INCOMPLETE"


class Stages:
    """What is done for a job, stage by stage.

    Args:
        jobs: Where they are kept.
        files: Stored documents.
        spool: Where they are put to be read.
        engines: What does the work.
        describer: Describes them.
        settings: Bounds.
        metrics: Counts pages and chunks.
    """

    def __init__(
        self,
        jobs: Jobs,
        files: DocumentFiles,
        spool: Spool,
        engines: Engines,
        describer: Describer,
        settings: DocumentsSettings,
        metrics: DocumentsMetrics,
    ) -> None:
        self._jobs = jobs
        self._files = files
        self._spool = spool
        self._engines = engines
        self._describer = describer
        self._settings = settings
        self._metrics = metrics
        self._stages: dict[Stage, Callable[[Job], Awaitable[Job | None]]] = {
            Stage.PARSE: self._parse,
            Stage.CHUNK: self._chunk,
            Stage.DESCRIBE: self._describe,
            Stage.COPY: self._copy,
            Stage.INDEX: self._index,
            Stage.PUBLISH: self._publish,
            Stage.CLEAN: self._clean,
            Stage.DELETE: self._delete,
        }

    async def run(self, job: Job) -> Job | None:
        """Do the job's stage; returns the job at its next stage, None once it is done.

        Raises:
            JobLost: it has another owner.
            DocumentRejected: the document cannot be read.
            ParserFailed: its parser failed.
            BosError: a service that is needed does not do its work.
        """
        return await self._stages[job.stage](job)

    async def reject(self, job: Job, reason: str, message: str) -> Job:
        """Give the document up, with a reason for its owner; what can be found stays.

        Raises:
            JobLost: the job has another owner.
        """
        job = replace(job, stage=Stage.CLEAN, done=0)
        async with self._jobs.step(job) as connection:
            if not job.quiet:
                await connection.execute(_REJECT, job.document_id, reason, message, job.attempts)
            await connection.execute(_DROP_PAGES, job.document_id)
            await advance(connection, job)
        return job

    async def _next(self, connection: Connection, job: Job, stage: Stage, **changes: Any) -> Job:
        job = replace(job, stage=stage, waits=0, deaths=0, **changes)
        await advance(connection, job)
        return job

    async def _parse(self, job: Job) -> Job:
        key = job.document_id
        async with self._jobs.step(job) as connection:
            row = await connection.fetchrow(_FILE, key)
            last = await connection.fetchval(readings.LAST_PAGE, key, job.generation)
            await connection.execute(_PARSING, key, job.attempts, last)
        assert row is not None
        stored = DocumentKey(job.user_id, key, row["digest"])
        notes: list[str] = list(job.found.get("notes", ()))
        try:
            async with (
                self._spool.fetched(self._files, stored) as path,
                self._engines.parser.open(path, row["name"]) as document,
            ):
                info = document.info
                await self._opened(job, info, last)
                notes = notes or [*info.notes]
                if last < info.page_count:
                    async for page in document.pages(last + 1):
                        notes += getattr(page, "notes", ())
                        await self._parsed(job, page)
        except (ArtefactMissing, ArtefactDamaged):
            raise DocumentRejected(
                "DOCUMENT_FILE_LOST", "The stored file is gone or damaged; upload it again."
            ) from None
        found = {
            "title": _short(info.title),
            "file_date": known_date(info.date),
            "notes": [_short(each) for each in dict.fromkeys(notes)][:MAX_NOTES],
        }
        async with self._jobs.step(job) as connection:
            return await self._next(connection, job, Stage.CHUNK, found=found)

    async def _opened(self, job: Job, info: DocumentInfo, last: int) -> None:
        async with self._jobs.step(job) as connection:
            await connection.execute(USER_LOCK, job.user_id)
            others = await connection.fetchval(_OTHER_PAGES, job.user_id, job.document_id)
            most = self._settings.max_pages_per_user
            if others + info.page_count > most:
                raise DocumentRejected(
                    "DOCUMENT_PAGES_LIMIT",
                    f"It has {info.page_count} pages; with your other documents that is more than "
                    f"{most}. Delete one, then have this one read again.",
                )
            await connection.execute(
                _OPENED, job.document_id, info.media_type, info.page_count, last
            )

    async def _parsed(self, job: Job, page: Page) -> None:
        content = await asyncio.to_thread(readings.packed_page, page)
        without = page.text is PageText.NONE
        async with self._jobs.step(job) as connection:
            await connection.execute(
                readings.ADD_PAGE,
                job.document_id,
                job.generation,
                page.number,
                job.user_id,
                content,
            )
            await connection.execute(
                _PARSED, job.document_id, page.number, without, MAX_PAGES_WITHOUT_TEXT
            )
            await connection.execute(_ALIVE, job.document_id)
        self._metrics.pages.inc()

    async def _chunk(self, job: Job) -> Job:
        pages: list[Page] = []
        while True:
            after = pages[-1].number if pages else 0
            async with self._jobs.step(job) as connection:
                rows = await connection.fetch(
                    readings.PAGES, job.document_id, job.generation, after, _PAGES_AT_ONCE
                )
            if not rows:
                break
            pages += await asyncio.to_thread(_unpacked, rows)
        chunks = await asyncio.to_thread(self._engines.chunker, job.document_id, pages)
        if not chunks:
            raise DocumentRejected(
                "DOCUMENT_WITHOUT_TEXT",
                "The file holds no text that could be read; where its pages are pictures, upload "
                "a version with text.",
            )
        if len(chunks) > self._settings.max_chunks:
            raise DocumentRejected(
                "DOCUMENT_TOO_MUCH_TEXT", "The document holds too much text; split it."
            )
        async with self._jobs.step(job) as connection:
            await readings.replace_chunks(
                connection, job.document_id, job.generation, job.user_id, chunks
            )
            await connection.execute(_CHUNKED, job.document_id, len(chunks))
            return await self._next(connection, job, Stage.DESCRIBE)

    async def _describe(self, job: Job) -> Job:
        async with self._jobs.step(job) as connection:
            given = await connection.fetchrow(_GIVEN, job.document_id)
            rows = await connection.fetch(
                readings.CHUNKS, job.document_id, job.generation, 0, _EXCERPT_CHUNKS
            )
        assert given is not None
        described = await self._describer.describe(_excerpt(given, job, rows))
        found = {
            **job.found,
            "description": described.description,
            "document_type": given["given_type"] or described.document_type,
            "topics": list(described.topics),
            "document_date": given["given_date"] or described.date,
        }
        async with self._jobs.step(job) as connection:
            return await self._next(
                connection,
                job,
                Stage.INDEX,
                found=found,
                done=0,
                model=self._engines.model,
            )

    async def _copy(self, job: Job) -> Job:
        async with self._jobs.step(job) as connection:
            if not await connection.fetchval(
                readings.COUNT_CHUNKS, job.document_id, job.generation
            ):
                await connection.execute(readings.COPY_CHUNKS, job.document_id, job.generation)
            model = self._engines.model
            return await self._next(connection, job, Stage.INDEX, done=0, model=model)

    async def _index(self, job: Job) -> Job:
        model = self._engines.model
        if job.model != model:
            job = await self._begin_again(job, model)
        while True:
            async with self._jobs.step(job) as connection:
                given = await connection.fetchrow(_GIVEN, job.document_id)
                rows = await connection.fetch(
                    readings.CHUNKS,
                    job.document_id,
                    job.generation,
                    job.done,
                    self._settings.index_batch,
                )
            if not rows:
                break
            assert given is not None
            await self._index_batch(job, given, rows)
            self._metrics.chunks.inc(len(rows))
            job = replace(job, done=job.done + len(rows))
            async with self._jobs.step(job) as connection:
                job = await self._next(connection, job, Stage.INDEX)
                if not job.quiet:
                    await connection.execute(_INDEXED, job.document_id, job.done)
        repaired = given is not None and given["serving"] == job.generation
        async with self._jobs.step(job) as connection:
            return await self._next(connection, job, Stage.CLEAN if repaired else Stage.PUBLISH)

    async def _index_batch(
        self, job: Job, given: asyncpg.Record, rows: Sequence[asyncpg.Record]
    ) -> None:
        """Embed and store chunks; with the first ones the document's entry."""
        name, said = given["name"], _said(job, given)
        points = [(str(row["chunk_id"]), row["section_path"], row["content"]) for row in rows]
        if not job.done:
            points.insert(0, (str(job.document_id), (), said["description"]))
        texts = [in_context(name, section, text) for _, section, text in points]
        vectors = await self._engines.embedder.embed_passages(texts)
        chunks = [
            IndexedChunk(
                chunk_id=point_id,
                document_id=str(job.document_id),
                dense=vector,
                text=text,
                document_type=said["document_type"],
                document_date=said["document_date"],
                topics=tuple(said["topics"]),
                section=_SECTION_SEPARATOR.join(section),
            )
            for (point_id, section, _), text, vector in zip(points, texts, vectors, strict=True)
        ]
        await self._engines.index.upsert(job.user_id, job.model, chunks)

    async def _begin_again(self, job: Job, model: str) -> Job:
        """Restart a job whose vectors are of another model, which was changed while it waited."""
        async with self._jobs.step(job) as connection:
            given = await connection.fetchrow(_GIVEN, job.document_id)
            rows = await connection.fetch(
                _STALE, job.document_id, given["serving"] if given else 0, False
            )
            serving = given is not None and given["serving"] == job.generation
        if job.model and job.done and not serving:
            ids = [str(row["chunk_id"]) for row in rows]
            if given is not None and (not given["serving"] or given["model"] != job.model):
                ids.append(str(job.document_id))
            await self._engines.index.delete_chunks(job.user_id, job.model, ids)
        async with self._jobs.step(job) as connection:
            return await self._next(connection, job, Stage.INDEX, done=0, model=model)

    async def _publish(self, job: Job) -> Job:
        key = job.document_id
        async with self._jobs.step(job) as connection:
            total = await connection.fetchval(readings.COUNT_CHUNKS, key, job.generation)
        indexed = await self._engines.index.count(job.user_id, job.model, str(key))
        if indexed < total + ENTRIES:
            async with self._jobs.step(job) as connection:
                await advance(connection, replace(job, stage=Stage.INDEX, done=0))
            raise IndexIncomplete("The index lost chunks of a document.", retry_after_s=1.0)
        async with self._jobs.step(job) as connection:
            given = await connection.fetchrow(_GIVEN, key)
            assert given is not None
            said = _said(job, given)
            await connection.execute(
                _PUBLISH,
                key,
                job.generation,
                total,
                job.model,
                said["description"],
                said["document_type"],
                said["topics"],
                said["document_date"],
                job.quiet,
                said["notes"],
            )
            await connection.execute(_DROP_PAGES, key)
            found = {**job.found, "former": given["model"] if given["serving"] else ""}
            return await self._next(connection, job, Stage.CLEAN, found=found)

    async def _clean(self, job: Job) -> Job | None:
        key, index = job.document_id, self._engines.index
        async with self._jobs.step(job) as connection:
            given = await connection.fetchrow(_GIVEN, key)
            assert given is not None
            serving, model = given["serving"], given["model"]
            former = job.found.get("former") or model
            other = former != model
            rows = await connection.fetch(_STALE, key, serving, other)
        if not serving:
            await index.delete_document(job.user_id, str(key))
        elif rows:
            ids = [str(row["chunk_id"]) for row in rows]
            # Where the former model serves no longer, its entry goes, too.
            entry = [str(key)]
            await index.delete_chunks(job.user_id, former, [*ids, *(entry if other else [])])
            if job.model and job.model not in (former, model):
                await index.delete_chunks(job.user_id, job.model, [*ids, *entry])
        wanted = given["serving_chunks"] + ENTRIES
        if serving and await index.count(job.user_id, model, str(key)) < wanted:
            self._metrics.repairs.labels("document").inc()
            again = replace(
                job, stage=Stage.INDEX, generation=serving, done=0, model=model, quiet=True
            )
            async with self._jobs.step(job) as connection:
                await connection.execute(_DROP_STALE, key, serving)
                await advance(connection, again)
                await connection.execute(_QUIET, key, serving)
            raise IndexIncomplete("The index lost chunks of a document.", retry_after_s=1.0)
        async with self._jobs.step(job) as connection:
            await connection.execute(_DROP_STALE, key, serving)
            await connection.execute(_CHECKED, key)
            await finish(connection, job)
            unused = other and not await connection.fetchval(_OF_MODEL, job.user_id, former)
            await announce(connection)
        if unused:
            await index.delete_model(job.user_id, former)
        return None

    async def _delete(self, job: Job) -> None:
        await self._engines.index.delete_document(job.user_id, str(job.document_id))
        await self._files.delete(job.user_id, job.document_id)
        async with self._jobs.step(job) as connection:
            await connection.execute(_REMOVE, job.document_id)


def _said(job: Job, given: asyncpg.Record) -> dict[str, Any]:
    """Description, kind, topics and date of this reading; those there are if it has none."""
    names = ("description", "document_type", "topics", "document_date", "notes")
    return {name: job.found.get(name, given[name]) for name in names}


def _excerpt(given: asyncpg.Record, job: Job, rows: Sequence[asyncpg.Record]) -> Excerpt:
    sections = dict.fromkeys(name for row in rows for name in row["section_path"][:2])
    return Excerpt(
        name=given["name"],
        title=job.found.get("title", ""),
        media_type=given["media_type"],
        pages=given["page_count"],
        sections=tuple(sections),
        text="\n\n".join(row["content"] for row in rows)[:_EXCERPT_CHARS],
        file_date=job.found.get("file_date", 0),
    )


def _unpacked(rows: Sequence[asyncpg.Record]) -> list[Page]:
    return [readings.unpacked_page(row["content"]) for row in rows]


def _short(text: str) -> str:
    return readings.storable(one_line(text))[:_MAX_NOTE_CHARS]
