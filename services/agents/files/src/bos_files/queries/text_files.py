"""CSV files: their encoding, their separator and their headings, worked out within bounds."""

from __future__ import annotations

import contextlib
import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bos_encodings import NotText, TextReading, read_text
from bos_files.queries.headings import has_headings
from bos_files.queries.limits import QueryLimits
from bos_files.queries.rejections import FileRejected

_SEPARATORS: Final = (",", ";", "\t", "|")
_SAMPLE_CHARS: Final = 256 * 1024
_SAMPLE_ROWS: Final = 100


@dataclass(frozen=True, slots=True)
class TextTable:
    """A CSV file as it is read.

    Attributes:
        text: its text, without blank lines before the first row.
        separator: what stands between cells.
        titles: headings, one a column; empty texts where there is none.
        headed: whether the first row is the headings.
    """

    text: str
    separator: str
    titles: list[str]
    headed: bool


def open_text(content: bytes, limits: QueryLimits) -> TextTable:
    """Return how to read a CSV file.

    Raises:
        FileRejected: it is no text, is empty, or has too many columns.
    """
    text = decoded(content).text.lstrip("\r\n")
    if not text.strip():
        raise FileRejected("it is empty")
    separator = _separator(text[:_SAMPLE_CHARS])
    table = TextTable(text, separator, [], headed=False)
    rows = [row for _, row in zip(range(_SAMPLE_ROWS), _rows(table, limits), strict=False)]
    width = max(map(len, rows))
    if width > limits.max_file_columns:
        raise FileRejected(f"it has {width} columns, and at most {limits.max_file_columns} may be")
    headed = has_headings(rows)
    titles = rows[0] if headed else []
    return TextTable(text, separator, titles + [""] * (width - len(titles)), headed)


def write_rows(table: TextTable, limits: QueryLimits, path: Path) -> None:
    """Write the rows without their headings as plain CSV in UTF-8, each with a cell a column.

    Raises:
        FileRejected: a row has too many cells or is too long, or a quote does not end.
    """
    width = len(table.titles)
    rows = _rows(table, limits)
    if table.headed:
        next(rows)
    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        for number, row in enumerate(rows, 2 if table.headed else 1):
            if len(row) > width:
                raise FileRejected(f"row {number} has {len(row)} cells, and the first have {width}")
            writer.writerow(row + [""] * (width - len(row)))


def decoded(content: bytes) -> TextReading:
    """Return the text of a file.

    Raises:
        FileRejected: it holds bytes that no text does.
    """
    try:
        return read_text(content)
    except NotText:
        raise FileRejected("it is not text") from None


def _separator(sample: str) -> str:
    """The separator that gives the most rows of one width, of more than one column."""
    best, found = (0, 0), _SEPARATORS[0]
    for separator in _SEPARATORS:
        widths: Counter[int] = Counter()
        # A sample may end within a quote, so only strict reading of the whole text finds mistakes.
        reader = csv.reader(io.StringIO(sample, newline=""), delimiter=separator)
        with contextlib.suppress(csv.Error):
            for _, row in zip(range(_SAMPLE_ROWS), reader, strict=False):
                widths[len(row)] += any(map(str.strip, row))
        (width, rows) = max(widths.items(), key=lambda each: (each[1], each[0]), default=(0, 0))
        if width > 1 and (rows, width) > best:
            best, found = (rows, width), separator
    return found


def _rows(table: TextTable, limits: QueryLimits) -> Iterator[list[str]]:
    """Rows that are not blank; strict, so that a quote without an end hides no rows.

    Raises:
        FileRejected: a quote does not end or a cell is too long; names the row.
    """
    csv.field_size_limit(limits.max_row_bytes)
    lines = io.StringIO(table.text, newline="")
    reader = csv.reader(lines, delimiter=table.separator, strict=True)
    number = 1
    try:
        for row in reader:
            if row:
                yield row
                number += 1
    except csv.Error:
        raise FileRejected(
            f"in row {number} a quote does not end, or has something behind it, or a cell is longer"
            f" than {limits.max_row_bytes} characters"
        ) from None
