"""Blocks and tables, built in one way by all parsers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bos_documents.parsing.blocks import Block, BlockKind
from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.parsing.text import MAX_PARAGRAPH, clean, one_line

_MAX_ROW = 128 * 1024
_NUMBER = re.compile(r"^[-+(]?[$€£]?\s?[\d.,' ]+\s?[%€$£)]?$")


class Blocks:
    """Blocks of one page, within bounds."""

    def __init__(self, limits: ParsingLimits) -> None:
        self._limits = limits
        self._chars = 0
        self._cells = 0
        self.done: list[Block] = []

    def heading(self, text: str, level: int) -> None:
        """Add a heading; a long one is a paragraph."""
        text = one_line(text)
        if len(text) > 500:
            self.paragraph(text)
        elif text:
            self._add(Block(BlockKind.HEADING, text, level=min(max(level, 1), 6)))

    def paragraph(self, text: str, kind: BlockKind = BlockKind.PARAGRAPH) -> None:
        """Add a paragraph or list item; an endless one becomes several."""
        for part in _parts(clean(text)):
            self._add(Block(kind, part))

    def item(self, text: str) -> None:
        """Add a list item."""
        self.paragraph(text, BlockKind.LIST_ITEM)

    def table(self, rows: Sequence[Sequence[str]], header_rows: int | None = None) -> None:
        """Add a table; without ``header_rows`` its first row is a header if it looks like one."""
        kept = [row for row in rows if any(cell.strip() for cell in row)]
        if not kept:
            return
        width = max(len(row) for row in kept)
        self._cells += width * len(kept)
        if self._cells > self._limits.page_cells:
            raise DocumentRejected(
                "DOCUMENT_TOO_MUCH_TEXT", "A table has too many cells; split it."
            )
        square = [
            tuple(one_line(cell) for cell in row) + ("",) * (width - len(row)) for row in kept
        ]
        if any(sum(map(len, row)) > _MAX_ROW for row in square):
            raise DocumentRejected(
                "DOCUMENT_TOO_MUCH_TEXT", "A row of a table is too long; split it."
            )
        used = [any(row[at] for row in square) for at in range(width)]
        full = tuple(tuple(c for c, use in zip(row, used, strict=True) if use) for row in square)
        full = tuple(row for row in full if any(row))
        if not full:
            return
        if len(full) == 1 and len(full[0]) == 1:
            self.paragraph(full[0][0])
            return
        header = guess_header(full) if header_rows is None else min(header_rows, len(full))
        self._add(Block(BlockKind.TABLE, table_text(full), rows=full, header_rows=header))

    def _add(self, block: Block) -> None:
        self._chars += len(block.text)
        if self._chars > self._limits.page_chars or len(self.done) >= self._limits.page_blocks:
            raise DocumentRejected("DOCUMENT_TOO_MUCH_TEXT")
        self.done.append(block)


def table_text(rows: Sequence[Sequence[str]]) -> str:
    """Text of a table: cells separated by `` | ``, one row a line."""
    return "\n".join(" | ".join(row) for row in rows)


def guess_header(rows: Sequence[Sequence[str]]) -> int:
    """1 if the first of several rows names columns: all filled, none a number, none twice."""
    if len(rows) < 2 or len(rows[0]) < 2:
        return 0
    first = [cell.strip() for cell in rows[0]]
    named = all(cell and len(cell) <= 80 and not _NUMBER.match(cell) for cell in first)
    return int(named and len(set(first)) == len(first))


def counted(count: int, what: str) -> str:
    """``2 pictures`` or ``1 picture``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _parts(text: str) -> Iterator[str]:
    while len(text) > MAX_PARAGRAPH:
        cut = text.rfind(" ", MAX_PARAGRAPH // 2, MAX_PARAGRAPH)
        cut = cut if cut > 0 else MAX_PARAGRAPH
        yield text[:cut]
        text = text[cut:].strip()
    if text:
        yield text
