"""Text of a document as parsers return it: pages of blocks, the same for every format."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class BlockKind(StrEnum):
    """What a block is."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    LIST_ITEM = "list_item"
    TABLE = "table"


class PageText(StrEnum):
    """Where the text of a page comes from."""

    EXTRACTED = "extracted"
    """It stands in the file as text."""
    RECOGNISED = "recognised"
    """It was read from a picture (OCR)."""
    NONE = "none"
    """The page holds no text that could be read."""


@dataclass(frozen=True, slots=True)
class Block:
    """A heading, a paragraph, a list item or a table, in reading order."""

    kind: BlockKind
    text: str
    """Its text; a table's is its rows, cells separated by `` | ``, one row a line."""
    level: int = 0
    """Of a heading: 1 is the outermost, 6 the innermost."""
    rows: tuple[tuple[str, ...], ...] = ()
    """Of a table: cells row by row, all rows equally long; nested tables are text of a cell."""
    header_rows: int = 0
    """Of a table: how many of the first rows are its header."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page, sheet or slide; formats without pages are one page."""

    number: int
    """From 1."""
    blocks: tuple[Block, ...]
    text: PageText = PageText.EXTRACTED
    title: str = ""
    """Name of a sheet or slide; empty otherwise."""
    notes: tuple[str, ...] = ()
    """What is left out of this page, or stands in it unseen, for the owner."""


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """What is known of a document before its pages are read."""

    media_type: str
    page_count: int
    """Pages, sheets or slides; 1 for formats without pages."""
    title: str = ""
    date: str = ""
    """Date in the file's own metadata, as YYYY-MM-DD; empty if there is none."""
    notes: tuple[str, ...] = field(default=())
    """What is left out and why (macros, embedded files, pictures), for the owner."""
