"""From the characters of a PDF page to lines, tables, headings and paragraphs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bos_documents.parsing.building import Blocks
from bos_documents.parsing.text import heading_level, join_lines, one_line, without_bullet

_DIGITS = re.compile(r"\d+|\b[ivxlc]{1,6}\b")
_EDGE_LINES = 3
"""A running header or footer stands among so many first or last lines of a page."""


@dataclass(slots=True)
class Segment:
    """Characters in a row without a wide gap."""

    text: str
    left: float
    right: float


@dataclass(slots=True)
class Line:
    """Segments on one base line."""

    base: float
    size: float
    bold: bool
    margin: bool = False
    """Whether it stands in the upper or lower margin of the page."""
    segments: list[Segment] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All of it."""
        return " ".join(segment.text.strip() for segment in self.segments)

    @property
    def left(self) -> float:
        """Where it begins."""
        return self.segments[0].left

    @property
    def right(self) -> float:
        """Where it ends."""
        return max(segment.right for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Layout:
    """What holds for a document: size of its text, sizes of headings, what repeats on each page."""

    body: float
    heading_sizes: tuple[float, ...] = ()
    repeated: frozenset[str] = frozenset()


def layout_of(pages: Sequence[Sequence[Line]]) -> Layout:
    """The layout of a document, from some of its pages."""
    chars = Counter[float]()
    for page in pages:
        for line in page:
            chars[_rounded(line.size)] += len(line.text)
    body = chars.most_common(1)[0][0] if chars else 10.0
    sizes = sorted((size for size in chars if size > body * 1.12), reverse=True)
    edges = Counter[str]()
    for page in pages:
        edges.update({_pattern(line) for line in _edges(page)})
    # Left and right pages may differ, so a third of the pages is enough.
    needed = max(3, len(pages) / 3)
    repeated = frozenset(text for text, count in edges.items() if text and count >= needed)
    return Layout(body, tuple(sizes[:4]), repeated)


def add_lines(blocks: Blocks, lines: Sequence[Line], layout: Layout) -> None:
    """Add the blocks that ``lines`` of a page make up, without running headers and footers."""
    edges = {id(line) for line in _edges(lines) if _pattern(line) in layout.repeated}
    kept = [line for line in lines if id(line) not in edges]
    at = 0
    while at < len(kept):
        end = _table_end(kept, at)
        if end > at:
            blocks.table(_grid(kept[at:end]))
        else:
            end = _paragraph_end(kept, at, layout)
            _add_paragraph(blocks, kept[at:end], layout)
        at = end


def _edges(lines: Sequence[Line]) -> list[Line]:
    """Topmost and lowest lines in the margins of a page, wherever they stand in the file."""
    ordered = sorted((line for line in lines if line.margin), key=lambda line: -line.base)
    found = ordered[:_EDGE_LINES] + ordered[-_EDGE_LINES:]
    return list({id(line): line for line in found}.values())


def _pattern(line: Line) -> str:
    """A line's text without its numbers, and where it stands: page numbers differ."""
    text = _DIGITS.sub("#", one_line(line.text).lower())
    return f"{round(line.base / 6)}:{text}"


def _rounded(size: float) -> float:
    return round(size * 2) / 2


def _level(line: Line, layout: Layout) -> int:
    """Level of a heading by the size of its letters; 0 for text."""
    size = _rounded(line.size)
    if size <= layout.body * 1.12 or len(line.text) > 200:
        return 0
    larger = sum(other > size for other in layout.heading_sizes)
    return min(larger + 1, 6)


def _paragraph_end(lines: Sequence[Line], start: int, layout: Layout) -> int:
    first = lines[start]
    level = _level(first, layout)
    widest = max(line.right for line in lines)
    end = start + 1
    while end < len(lines):
        before, line = lines[end - 1], lines[end]
        gap = before.base - line.base
        same = abs(line.size - first.size) < 0.6 and line.bold == first.bold
        near = 0 < gap < 1.75 * max(before.size, line.size)
        if not (same and near) or _level(line, layout) != level or _table_end(lines, end) > end:
            break
        text = one_line(line.text)
        if without_bullet(text) is not None or (line.bold and heading_level(text)):
            break
        # An indented line after one that ends early begins a paragraph.
        indented = line.left > before.left + first.size and before.right < widest - 4 * first.size
        if indented and without_bullet(one_line(first.text)) is None:
            break
        if (
            heading_level(one_line(before.text))
            and end == start + 1
            and before.right < widest * 0.8
        ):
            break
        end += 1
    return end


def _add_paragraph(blocks: Blocks, lines: Sequence[Line], layout: Layout) -> None:
    text = join_lines(line.text for line in lines)
    if not text:
        return
    by_size = _level(lines[0], layout)
    by_text = heading_level(text) if len(lines) <= 2 else 0
    numbered = by_text if text[0].isdigit() else 0
    item = without_bullet(text)
    if by_size:
        blocks.heading(text, numbered or by_size)
    elif by_text:
        blocks.heading(text, by_text)
    elif (
        lines[0].bold
        and len(lines) <= 2
        and len(text) <= 120
        and text[-1] not in ".;,:"
        and not item
    ):
        blocks.heading(text, min(len(layout.heading_sizes) + 1, 6))
    elif item is not None:
        blocks.item(item)
    else:
        blocks.paragraph(text)


def _table_end(lines: Sequence[Line], start: int) -> int:
    """Where a table that begins at ``start`` ends; ``start`` itself if none begins there.

    A table here is: at least two lines of which each has several segments, whose columns stand
    below one another. Cells of several lines, and tables by ruled lines alone, are not recognised.
    """
    width = len(lines[start].segments)
    if width < 2:
        return start
    end = start + 1
    while end < len(lines):
        line = lines[end]
        apart = lines[end - 1].base - line.base
        if len(line.segments) < 2 or not 0 < apart < 4 * line.size:
            break
        if not _aligned(lines[start:end], line):
            break
        end += 1
    rows = lines[start:end]
    cells = [segment.text for line in rows for segment in line.segments]
    prose = sum(map(len, cells)) > 45 * len(cells)
    needed = 3 if max(len(line.segments) for line in rows) == 2 else 2
    return end if len(rows) >= needed and not prose else start


def _aligned(above: Sequence[Line], line: Line) -> bool:
    columns = _columns(above)
    hits = sum(any(_overlap(segment, column) for column in columns) for segment in line.segments)
    return hits >= max(2, len(line.segments) - 1) and abs(len(line.segments) - len(columns)) <= len(
        columns
    )


def _columns(lines: Iterable[Line]) -> list[tuple[float, float]]:
    """Where columns begin and end, from left to right."""
    spans = sorted((segment.left, segment.right) for line in lines for segment in line.segments)
    columns: list[tuple[float, float]] = []
    for left, right in spans:
        if columns and left < columns[-1][1]:
            columns[-1] = (columns[-1][0], max(columns[-1][1], right))
        else:
            columns.append((left, right))
    return columns


def _overlap(segment: Segment, column: tuple[float, float]) -> bool:
    return segment.left < column[1] and segment.right > column[0]


def _grid(lines: Sequence[Line]) -> list[list[str]]:
    columns = _columns(lines)
    rows = []
    for line in lines:
        row = [""] * len(columns)
        for segment in line.segments:
            at = next(n for n, column in enumerate(columns) if _overlap(segment, column))
            row[at] = f"{row[at]} {segment.text}".strip()
        rows.append(row)
    return rows
