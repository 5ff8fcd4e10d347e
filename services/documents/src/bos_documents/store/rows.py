"""Rows as messages of the contract; pure."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Final

from bos.documents.v1 import Chunk, ChunkKind, Document, DocumentState

if TYPE_CHECKING:
    from collections.abc import Iterable

    import asyncpg

MAX_PAGES_WITHOUT_TEXT: Final = 100
MAX_NOTES: Final = 20
_STATES: Final = {
    "storing": DocumentState.DOCUMENT_STATE_QUEUED,
    "queued": DocumentState.DOCUMENT_STATE_QUEUED,
    "parsing": DocumentState.DOCUMENT_STATE_PARSING,
    "indexing": DocumentState.DOCUMENT_STATE_INDEXING,
    "ready": DocumentState.DOCUMENT_STATE_READY,
    "failed": DocumentState.DOCUMENT_STATE_FAILED,
}
_KINDS: Final = {"text": ChunkKind.CHUNK_KIND_TEXT, "table": ChunkKind.CHUNK_KIND_TABLE}

DOCUMENT_COLUMNS: Final = (
    "document_id, name, media_type, digest, size_bytes, state, failure_reason, failure_message, "
    "description, document_type, topics, document_date, page_count, pages_parsed, "
    "pages_without_text, notes, chunks_total, chunks_indexed, serving_chunks, attempts, version, "
    "created_at, state_changed_at"
)
CHUNK_COLUMNS: Final = (
    "c.chunk_id, c.document_id, d.name, c.content, c.kind, c.ordinal, c.first_page, c.last_page, "
    "c.section_path, c.start_char, c.end_char, c.parent_chunk_id, c.recognised, d.document_type, "
    "d.document_date, d.topics"
)


def document_of(row: asyncpg.Record) -> Document:
    """A document of :data:`DOCUMENT_COLUMNS`."""
    found = Document(
        document_id=str(row["document_id"]),
        name=row["name"],
        media_type=row["media_type"],
        digest="sha256:" + row["digest"].hex(),
        size_bytes=row["size_bytes"],
        state=_STATES[row["state"]],
        description=row["description"],
        document_type=row["document_type"],
        topics=row["topics"],
        document_date=written_date(row["document_date"]),
        page_count=row["page_count"],
        pages_without_text=row["pages_without_text"][:MAX_PAGES_WITHOUT_TEXT],
        chunk_count=row["serving_chunks"],
        notes=row["notes"][:MAX_NOTES],
    )
    found.progress.pages_parsed = row["pages_parsed"]
    found.progress.pages_total = row["page_count"]
    found.progress.chunks_indexed = row["chunks_indexed"]
    found.progress.chunks_total = row["chunks_total"]
    found.progress.attempts = row["attempts"]
    if row["state"] == "failed":
        found.failure.reason = row["failure_reason"]
        found.failure.message = row["failure_message"]
    found.create_time.FromDatetime(row["created_at"])
    found.update_time.FromDatetime(row["state_changed_at"])
    return found


def chunk_of(row: asyncpg.Record) -> Chunk:
    """A chunk of :data:`CHUNK_COLUMNS`."""
    return Chunk(
        chunk_id=str(row["chunk_id"]),
        document_id=str(row["document_id"]),
        document_name=row["name"],
        text=row["content"],
        kind=_KINDS[row["kind"]],
        ordinal=row["ordinal"],
        first_page=row["first_page"],
        last_page=row["last_page"],
        section_path=row["section_path"],
        start_char=row["start_char"],
        end_char=row["end_char"],
        parent_chunk_id=str(row["parent_chunk_id"] or ""),
        document_type=row["document_type"],
        document_date=written_date(row["document_date"]),
        topics=row["topics"],
        recognised=row["recognised"],
    )


def stored_states(states: Iterable[DocumentState]) -> list[str]:
    """What rows say for states of the contract."""
    wanted = set(states)
    return [name for name, state in _STATES.items() if state in wanted]


def number_of_date(text: str) -> int:
    """``YYYY-MM-DD`` as YYYYMMDD; 0 for an empty text.

    Raises:
        ValueError: it is no date of the calendar.
    """
    if not text:
        return 0
    found = date.fromisoformat(text)
    return found.year * 10_000 + found.month * 100 + found.day


def written_date(number: int) -> str:
    """YYYYMMDD as ``YYYY-MM-DD``; empty for 0."""
    return f"{number // 10_000:04}-{number // 100 % 100:02}-{number % 100:02}" if number else ""
