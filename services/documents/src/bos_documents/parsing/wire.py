"""Messages between the service and a parser process, and their bounds.

A message is its length (four bytes, big-endian) and that many bytes of JSON. The service takes a
worker for hostile: what it reads is bounded, checked field by field, and becomes text and nothing
else. A page comes in several messages, so that none is large.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bos_documents.parsing.blocks import Block, BlockKind, DocumentInfo, Page, PageText
from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.rejections import REASONS, DocumentRejected

MAX_MESSAGE = 1024 * 1024
_PART = 128 * 1024
"""Characters after which a message is sent; escaped as JSON they take at most six bytes each."""
_MAX_TEXT = 160 * 1024
_MAX_TITLE = 600
_MAX_NOTES = 200
_MAX_NOTE = 1000


class BadAnswer(Exception):
    """A worker sent what no parser sends."""


def pack(message: dict[str, Any]) -> bytes:
    """``message`` as bytes."""
    data = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    return len(data).to_bytes(4, "big") + data


def unpack(data: bytes) -> dict[str, Any]:
    """The message in ``data``, without its length.

    Raises:
        BadAnswer: It is none.
    """
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadAnswer from error
    if not isinstance(message, dict):
        raise BadAnswer
    return message


def info_message(info: DocumentInfo) -> dict[str, Any]:
    """What is known of a document."""
    return {
        "type": info.media_type,
        "pages": info.page_count,
        "title": info.title,
        "date": info.date,
        "notes": _short(info.notes),
    }


def page_messages(page: Page) -> Iterator[dict[str, Any]]:
    """A page: what it is, then its blocks in several messages, then the end."""
    yield {
        "page": page.number,
        "text": page.text.value,
        "title": page.title,
        "notes": _short(page.notes),
    }
    items: list[Any] = []
    size = 0
    for item, length in _items(page):
        if items and size + length > _PART:
            yield {"items": items}
            items, size = [], 0
        items.append(item)
        size += length + 16
    if items:
        yield {"items": items}
    yield {"end": len(page.blocks)}


def _short(notes: tuple[str, ...]) -> list[str]:
    return [note[: _MAX_NOTE - 1] for note in notes[:_MAX_NOTES]]


def _items(page: Page) -> Iterator[tuple[list[Any], int]]:
    """Blocks as [kind, text, level]; tables as [kind, header rows], then rows as ["row", cells]."""
    for block in page.blocks:
        if block.kind is BlockKind.TABLE:
            yield [block.kind.value, block.header_rows], 0
            for row in block.rows:
                # Many short cells cost more than their text.
                yield ["row", list(row)], sum(map(len, row)) + 4 * len(row)
        else:
            yield [block.kind.value, block.text, block.level], len(block.text)


def read_rejection(message: dict[str, Any]) -> DocumentRejected:
    """The rejection in a message."""
    match message:
        case {"rejected": str(reason), "message": str(text), "detail": str(detail)} if (
            reason in REASONS and _is_text(text, _MAX_NOTE) and _is_text(detail, _MAX_NOTE)
        ):
            return DocumentRejected(reason, text, detail=detail)
    raise BadAnswer


def read_info(message: dict[str, Any], limits: ParsingLimits) -> DocumentInfo:
    """The description in a message."""
    match message:
        case {
            "type": str(kind), "pages": int(pages), "title": str(title), "date": str(date),
            "notes": list(notes),
        } if (
            0 < pages <= limits.pages
            and _is_text(kind, 100) and _is_text(title, _MAX_TITLE) and _is_text(date, 10)
        ):  # fmt: skip
            return DocumentInfo(kind, pages, title, date, _notes(notes))
    raise BadAnswer


@dataclass(slots=True)
class PageReader:
    """Puts a page together from its messages, within bounds."""

    number: int
    limits: ParsingLimits
    chars: int = 0
    _cells: int = 0
    _head: tuple[PageText, str, tuple[str, ...]] | None = None
    _blocks: list[Block] = field(default_factory=list)
    _rows: list[tuple[str, ...]] | None = None
    _header: int = 0

    def take(self, message: dict[str, Any]) -> Page | None:
        """Take a message; the page, once it is whole.

        Raises:
            BadAnswer: The worker sent what no parser sends.
            DocumentRejected: The page is larger than pages may be.
        """
        if self._head is None:
            self._begin(message)
            return None
        match message:
            case {"items": list(items)}:
                for item in items:
                    self._item(item)
                return None
            case {"end": int(count)}:
                self._end_table()
                if count != len(self._blocks):
                    raise BadAnswer
                text, title, notes = self._head
                return Page(self.number, tuple(self._blocks), text, title, notes)
        raise BadAnswer

    def _begin(self, message: dict[str, Any]) -> None:
        match message:
            case {
                "page": int(number),
                "text": str(text),
                "title": str(title),
                "notes": list(notes),
            }:
                if number != self.number or not _is_text(title, _MAX_TITLE):
                    raise BadAnswer
                if text not in set(PageText):
                    raise BadAnswer
                self._head = (PageText(text), title, _notes(notes))
            case _:
                raise BadAnswer

    def _item(self, item: object) -> None:
        match item:
            case ["row", list(cells)] if self._rows is not None:
                self._row(cells)
            case ["table", int(header)] if header >= 0:
                self._end_table()
                self._rows, self._header = [], header
            case [str(kind), str(text), int(level)] if kind != "table" and kind in set(BlockKind):
                self._end_table()
                if not 0 <= level <= 6 or not _is_text(text, _MAX_TEXT):
                    raise BadAnswer
                self._add(Block(BlockKind(kind), text, level=level))
            case _:
                raise BadAnswer

    def _row(self, cells: list[object]) -> None:
        assert self._rows is not None
        self._cells += len(cells)
        if not cells or (self._rows and len(cells) != len(self._rows[0])):
            raise BadAnswer
        if self._cells > self.limits.page_cells:
            raise DocumentRejected("DOCUMENT_TOO_MUCH_TEXT")
        texts = [cell for cell in cells if isinstance(cell, str) and _is_text(cell, _MAX_TEXT)]
        if len(texts) != len(cells):
            raise BadAnswer
        # Rows are counted as they come: the text of the table is put together from them at its end.
        self._count(sum(map(len, texts)) + 3 * len(texts))
        self._rows.append(tuple(texts))

    def _end_table(self) -> None:
        if self._rows is None:
            return
        rows, self._rows = tuple(self._rows), None
        if not rows or self._header > len(rows):
            raise BadAnswer
        text = "\n".join(" | ".join(row) for row in rows)
        self._add(Block(BlockKind.TABLE, text, rows=rows, header_rows=self._header), counted=True)

    def _add(self, block: Block, *, counted: bool = False) -> None:
        if not counted:
            self._count(len(block.text))
        if len(self._blocks) >= self.limits.page_blocks:
            raise DocumentRejected("DOCUMENT_TOO_MUCH_TEXT")
        self._blocks.append(block)

    def _count(self, chars: int) -> None:
        self.chars += chars
        # Bars between cells are counted here and not by the worker.
        if self.chars > 2 * self.limits.page_chars:
            raise DocumentRejected("DOCUMENT_TOO_MUCH_TEXT")


def _notes(notes: list[object]) -> tuple[str, ...]:
    texts = tuple(note for note in notes if isinstance(note, str) and _is_text(note, _MAX_NOTE))
    if len(texts) != len(notes) or len(texts) > _MAX_NOTES:
        raise BadAnswer
    return texts


def _is_text(text: object, most: int) -> bool:
    """Whether ``text`` is short enough, and can be stored by a database."""
    if not isinstance(text, str) or len(text) > most or "\0" in text:
        return False
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)
