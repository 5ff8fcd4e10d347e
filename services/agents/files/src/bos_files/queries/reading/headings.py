"""Where the headings of a table stand, and what stands above them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

_VALUE: Final = re.compile(
    r"\s*(?:[+-]?[\d.,]*\d(?:[eE][+-]?\d+)?|\d{4}-\d\d?-\d\d?.*|\d\d?[./]\d\d?[./]\d{2,4}|true|false)\s*",
    re.IGNORECASE | re.ASCII,
)
_YEAR: Final = re.compile(r"\s*(?:19|20)\d\d\s*", re.ASCII)
_MOST_ABOVE: Final = 20
_SHOWN_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Headings:
    """Headings of a table.

    Attributes:
        above: rows above them that are no part of the table, such as its title.
        rows: how many rows they take; 0 for a table without any.
        titles: one a column; empty where there is none.
        notes: what a reader should know of what stands above.
    """

    above: int = 0
    rows: int = 0
    titles: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_headings(
    rows: Sequence[Sequence[str]], spans: Sequence[tuple[int, int, int]] = ()
) -> Headings:
    """Return the headings of a table.

    Args:
        rows: Its first rows; none of them is blank.
        spans: Row, first and last column of cells that are merged across columns.
    """
    width = max(map(len, rows), default=0)
    above = _above(rows, spans)
    groups = [span for span in spans if span[0] == above and span[2] - span[1] + 1 < width]
    notes = []
    if above:
        said = "; ".join(" ".join(filter(None, map(str.strip, row))) for row in rows[:above])
        what = "The row above the headings is" if above == 1 else f"{above} rows above are"
        notes.append(f"{what} no part of the table: {said[:_SHOWN_CHARS]}")
    if groups and len(rows) > above + 1 and has_headings(rows[above + 1 :]):
        first, second = (_padded(rows[at], width) for at in (above, above + 1))
        if _is_second_row(first, second, groups):
            for _, start, end in groups:
                first[start : end + 1] = [first[start]] * (end + 1 - start)
            both = zip(first, second, strict=True)
            titles = [a if a == b else f"{a} {b}".strip() for a, b in both]
            return Headings(above, 2, titles, notes)
    if has_headings(rows[above:]):
        return Headings(above, 1, _padded(rows[above], width), notes)
    return Headings(titles=[""] * width)


def has_headings(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names the columns: no number, date or truth value is in it.

    Years are headings too, as of a table with a column for each, where other cells are words.
    """
    if not rows:
        return False
    first = [cell for cell in rows[0] if cell.strip()]
    words = [cell for cell in first if not _VALUE.fullmatch(cell)]
    return bool(words) and all(cell in words or _YEAR.fullmatch(cell) for cell in first)


def _above(rows: Sequence[Sequence[str]], spans: Sequence[tuple[int, int, int]]) -> int:
    """How many rows stand above the headings: fewer cells are filled than in most rows.

    None if no headings follow them: a row of a table without headings may have few cells.
    """
    filled = [sum(bool(cell.strip()) for cell in row) for row in rows]
    usual = max(Counter(filled).items(), key=lambda each: (each[1], each[0]), default=(0, 0))[0]
    most = max(1, usual // 2 - 1)
    above = 0
    while (
        usual > 1
        and above < min(_MOST_ABOVE, len(rows) - 1)
        and filled[above] <= most
        # Of two columns, the first may be an index without a heading.
        and (usual > 2 or rows[above][0].strip())
        and not any(row == above and last - first + 1 < usual for row, first, last in spans)
    ):
        above += 1
    grouped = any(row == above for row, *_ in spans)
    headed = has_headings(rows[above:]) or (grouped and has_headings(rows[above + 1 :]))
    return above if headed and filled[above] > most else 0


def _is_second_row(
    first: Sequence[str], second: Sequence[str], groups: Sequence[tuple[int, int, int]]
) -> bool:
    """Whether the second row is one of headings too: a column without a group has one heading."""
    grouped = {at for _, start, end in groups for at in range(start, end + 1)}
    both = enumerate(zip(first, second, strict=True))
    return all(at in grouped or a == b or not (a.strip() and b.strip()) for at, (a, b) in both)


def _padded(row: Sequence[str], width: int) -> list[str]:
    return [*row, *[""] * (width - len(row))]
