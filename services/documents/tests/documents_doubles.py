"""Fake engines for tests: parser, chunker, embedding model and index; shared by processes.

The index is a file, so that it outlives a process that is killed, as a real one does.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
import sqlite3
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from bos_documents.chunking.chunks import ChunkKind, TextChunk
from bos_documents.engines import FusingRanker
from bos_documents.index.port import IndexedChunk, IndexFilter, Legs, Scored
from bos_documents.parsing.blocks import Block, BlockKind, DocumentInfo, Page, PageText
from bos_documents.parsing.port import ParserFailed
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.ports import Engines
from bos_errors import Unavailable

DIMENSION = 64


class TextDocument:
    """Pages of a text, apart by form feeds; a page ``!`` and a word does what the word says."""

    def __init__(self, text: str, parser: TextParser) -> None:
        self._pages = text.split("\f")
        self._parser = parser
        self.info = DocumentInfo("text/plain", len(self._pages), title=text.split("\n")[0][:80])

    async def pages(self, from_page: int) -> AsyncIterator[Page]:
        for number, text in enumerate(self._pages, 1):
            if number < from_page:
                continue
            await self._parser.before_page(number)
            self._parser.read.append(number)
            if text.startswith("!encrypted"):
                raise DocumentRejected("DOCUMENT_ENCRYPTED", "Remove the password.")
            if text.startswith("!dies"):
                raise ParserFailed("WORKER_DIED", by_document=True)
            if text.startswith("!absent") and self._parser.absent:
                raise ParserFailed("WORKER_NOT_STARTED", by_document=False)
            blocks = tuple(_block(each) for each in text.split("\n") if each.strip())
            yield Page(number, blocks, PageText.EXTRACTED if blocks else PageText.NONE)


class TextParser:
    """Reads texts; ``held`` stops it before each page until it is set."""

    def __init__(self) -> None:
        self.held: asyncio.Event | None = None
        self.read: list[int] = []
        self.absent = False

    async def before_page(self, number: int) -> None:
        if self.held is not None and number > 1:
            await self.held.wait()

    @asynccontextmanager
    async def open(self, content: bytes | Path, name: str) -> AsyncIterator[TextDocument]:
        data = await asyncio.to_thread(_content, content)
        yield TextDocument(data.decode("utf-8", "replace"), self)


def _content(content: bytes | Path) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()


def _block(line: str) -> Block:
    if line.startswith("# "):
        return Block(BlockKind.HEADING, line[2:], level=1)
    return Block(BlockKind.PARAGRAPH, line)


def chunk_lines(document_id: uuid.UUID, pages: Sequence[Page]) -> list[TextChunk]:
    """Every paragraph is a chunk."""
    chunks: list[TextChunk] = []
    seen: dict[str, int] = {}
    section, start = "", 0
    for page in pages:
        for block in page.blocks:
            end = start + len(block.text)
            if block.kind is BlockKind.HEADING:
                section = block.text
            else:
                digest = hashlib.sha256(block.text.encode()).hexdigest()
                seen[digest] = seen.get(digest, 0) + 1
                chunks.append(
                    TextChunk(
                        str(uuid.uuid5(document_id, f"{digest}:{seen[digest]}")),
                        len(chunks),
                        block.text,
                        ChunkKind.TEXT,
                        len(block.text.split()),
                        page.number,
                        page.number,
                        (section,) if section else (),
                        start,
                        end,
                        None,
                    )
                )
            start = end + 2
    return chunks


class WordEmbedder:
    """Words by their hash, counted."""

    dimension = DIMENSION

    def __init__(self, model: str = "words-1") -> None:
        self.model = model
        self.away = False
        self.held: asyncio.Event | None = None
        self.embedded = 0
        self.queries: list[str] = []
        self.in_process = True

    async def embed_passages(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        if self.held is not None:
            await self.held.wait()
        if self.away:
            raise Unavailable("The model is away.", reason="MODEL_AWAY")
        self.embedded += len(texts)
        return [_vector(text) for text in texts]

    async def embed_query(self, text: str) -> tuple[float, ...]:
        self.queries.append(text)
        return _vector(text)


def _words(text: str) -> list[str]:
    return re.findall(r"[\w-]+", text.casefold())


def _vector(text: str) -> tuple[float, ...]:
    counts = [0.0] * DIMENSION
    for word in _words(text):
        counts[hashlib.sha256(word.encode()).digest()[0] % DIMENSION] += 1.0
    length = math.sqrt(sum(each * each for each in counts)) or 1.0
    return tuple(each / length for each in counts)


_TABLE = """
CREATE TABLE IF NOT EXISTS points (
    user_id TEXT, model TEXT, chunk_id TEXT, document_id TEXT, dense TEXT, words TEXT, about TEXT,
    PRIMARY KEY (user_id, model, chunk_id))
"""


class FileIndex:
    """Points in an SQLite file, searched one by one."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.away = False
        self.upserted = 0
        with closing(self._connected()) as connection, connection:
            connection.execute(_TABLE)

    def _connected(self) -> sqlite3.Connection:
        return sqlite3.connect(self._file, timeout=30)

    def _do(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with closing(self._connected()) as connection, connection:
            connection.executemany(sql, rows)

    def points(self, sql: str = "1", *arguments: Any) -> list[tuple[Any, ...]]:
        with closing(self._connected()) as connection:
            return connection.execute(
                "SELECT user_id, model, chunk_id, document_id, dense, words, about FROM points "
                f"WHERE {sql} ORDER BY chunk_id",
                arguments,
            ).fetchall()

    def _check(self) -> None:
        if self.away:
            raise Unavailable("The index is away.", reason="INDEX_AWAY")

    async def upsert(self, user_id: str, model: str, chunks: Sequence[IndexedChunk]) -> None:
        self._check()
        rows = [
            (
                *(user_id, model, each.chunk_id, each.document_id, json.dumps(each.dense)),
                json.dumps(_words(each.text)),
                json.dumps([each.document_type, each.document_date, each.topics, each.section]),
            )
            for each in chunks
        ]
        self.upserted += len(rows)
        sql = "INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?, ?, ?, ?)"
        await asyncio.to_thread(self._do, sql, rows)

    async def delete_document(self, user_id: str, document_id: str) -> None:
        await self._delete("user_id = ? AND document_id = ?", [(user_id, document_id)])

    async def delete_chunks(self, user_id: str, model: str, chunk_ids: Sequence[str]) -> None:
        rows = [(user_id, model, each) for each in chunk_ids]
        await self._delete("user_id = ? AND model = ? AND chunk_id = ?", rows)

    async def delete_user(self, user_id: str) -> None:
        await self._delete("user_id = ?", [(user_id,)])

    async def delete_model(self, user_id: str, model: str) -> None:
        await self._delete("user_id = ? AND model = ?", [(user_id, model)])

    async def _delete(self, wanted: str, rows: Sequence[Sequence[str]]) -> None:
        self._check()
        await asyncio.to_thread(self._do, f"DELETE FROM points WHERE {wanted}", rows)

    async def count(self, user_id: str, model: str, document_id: str | None = None) -> int:
        self._check()
        if document_id is None:
            return len(self.points("user_id = ? AND model = ?", user_id, model))
        wanted = "user_id = ? AND model = ? AND document_id = ?"
        return len(self.points(wanted, user_id, model, document_id))

    async def search(
        self,
        user_id: str,
        model: str,
        *,
        dense: Sequence[float] | None,
        text: str | None,
        filter: IndexFilter,
        limit: int,
    ) -> Legs:
        self._check()
        points = [
            point
            for point in self.points("user_id = ? AND model = ?", user_id, model)
            if _passes(point[3], json.loads(point[6]), filter)
        ]
        by_meaning: list[Scored] = []
        by_words: list[Scored] = []
        wanted = set(_words(text or ""))
        for point in points:
            if dense is not None:
                score = sum(a * b for a, b in zip(dense, json.loads(point[4]), strict=True))
                by_meaning.append(Scored(point[2], score))
            if text is not None and (common := wanted & set(json.loads(point[5]))):
                by_words.append(Scored(point[2], float(len(common))))
        return Legs(_best(by_meaning, limit), _best(by_words, limit))

    async def close(self) -> None:
        """Nothing is open."""


def _passes(document_id: str, about: list[Any], wanted: IndexFilter) -> bool:
    kind, date, topics, section = about
    return (
        (not wanted.document_ids or document_id in wanted.document_ids)
        and (not wanted.document_types or kind in wanted.document_types)
        and (not wanted.topics or bool(set(topics) & set(wanted.topics)))
        and (not wanted.date_from or (date and date >= wanted.date_from))
        and (not wanted.date_to or (date and date <= wanted.date_to))
        and set(_words(wanted.section)) <= set(_words(section))
    )


def _best(found: Sequence[Scored], limit: int) -> tuple[Scored, ...]:
    return tuple(sorted(found, key=lambda each: (-each.score, each.chunk_id))[:limit])


def engines(folder: Path, model: str = "words-1") -> Engines:
    """All of them, with their index in ``folder``."""
    return Engines(
        parser=TextParser(),
        chunker=chunk_lines,
        embedder=WordEmbedder(model),
        index=FileIndex(folder / "index.sqlite"),
        ranker=FusingRanker(),
    )
