"""Passages of a document: what is indexed, found and cited."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ChunkKind(StrEnum):
    """What a chunk holds."""

    TEXT = "text"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A passage with its place in the document.

    ``start_char`` and ``end_char`` count characters of the document's extracted text: all blocks
    of all pages in order, two newlines between them. ``text`` is that span, except for a part of
    a table after its first, which begins with the table's header again.
    """

    chunk_id: str
    """UUID, version 5, of the document id, the text and how often that text came before."""
    ordinal: int
    text: str
    kind: ChunkKind
    tokens: int
    first_page: int
    last_page: int
    section_path: tuple[str, ...]
    start_char: int
    end_char: int
    parent_chunk_id: str | None
    """First chunk of the section; None for that chunk itself."""
    recognised: bool = False
    """Its text was read from a picture (OCR)."""
