"""CSV files: their encoding, their separator and their headings, worked out within bounds."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bos_encodings import NotText, TextReading, read_text
from bos_files.queries.limits import QueryLimits
from bos_files.queries.reading.headings import find_headings
from bos_files.queries.rejections import FileRejected

_SEPARATORS: Final = (",", ";", "\t", "|")
_SAMPLE_CHARS: Final = 256 * 1024
_SAMPLE_ROWS: Final = 100
_DECIMALS: Final = re.compile(r"[^,\n]*(?:\n\d+,\d+\r?)+(?:\n\d*,?)?\s*", re.ASCII)
"""A heading without a comma above numbers with one: a single column; the last may be cut off."""
_NAMED_SEPARATOR: Final = re.compile(r'"?sep=([^\r\n"])"?[,;\t|]*\r?\n', re.IGNORECASE)
"""First line by which Excel is asked to read a file."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A CSV file as it is read.

    Attributes:
        text: its text, without blank lines before the first row.
        separator: what stands between cells.
        titles: headings, one a column; empty texts where there is none.
        skipped: rows before the first one of the table: headings, and what stands above them.
        notes: what a reader should know of how it is read.
    """

    text: str
    separator: str
    titles: list[str]
    skipped: int
    notes: tuple[str, ...] = ()


def open_text(content: bytes, limits: QueryLimits) -> TextTable:
    """Return how to read a CSV file.

    Raises:
        FileRejected: it is no text, is empty, or has too many columns.
    """
    reading = decoded(content)
    text = reading.text.lstrip("\r\n")
    if not text.strip():
        raise FileRejected("it is empty")
    if named := _NAMED_SEPARATOR.match(text):
        text = text[named.end() :]
    separator = named[1] if named else _separator(text[:_SAMPLE_CHARS])
    table = TextTable(text, separator, [], 0)
    rows = [row for _, row in zip(range(_SAMPLE_ROWS), _rows(table, limits), strict=False)]
    found = find_headings(rows)
    notes = (*filter(None, [reading.note]), *found.notes)
    table = TextTable(text, separator, found.titles, found.above + found.rows, notes)
    _check_width(len(table.titles), limits)
    return table


def write_rows(table: TextTable, limits: QueryLimits, path: Path) -> TextTable:
    """Write the rows without their headings as plain CSV in UTF-8, each with a cell a column.

    Returns:
        The table, with a column more for cells beyond the headings, and a note on them.

    Raises:
        FileRejected: there are too many columns, a row is too long, or a quote does not end.
    """
    while True:
        width, longer, shorter = len(table.titles), [], 0
        rows = _rows(table, limits)
        for _ in range(table.skipped):
            next(rows)
        with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
            for row in rows:
                if len(row) > width:
                    longer.append(len(row))
                elif not longer:
                    shorter += len(row) < width
                    writer.writerow(row + [""] * (width - len(row)))
        if not longer:
            break
        _check_width(max(longer), limits)
        table = replace(table, titles=table.titles + [""] * (max(longer) - width))
    if shorter and table.skipped:
        what = "1 row has" if shorter == 1 else f"{shorter} rows have"
        note = f"{what} fewer cells than the longest row; the last ones are read as blank."
        table = replace(table, notes=(*table.notes, note))
    return table


def decoded(content: bytes) -> TextReading:
    """Return the text of a file.

    Raises:
        FileRejected: it holds bytes that no text does.
    """
    try:
        return read_text(content)
    except NotText:
        raise FileRejected("it is not text") from None


def _check_width(width: int, limits: QueryLimits) -> None:
    if width > limits.max_file_columns:
        raise FileRejected(f"it has {width} columns, and at most {limits.max_file_columns} may be")


def _separator(sample: str) -> str:
    """The separator that gives the most rows of one width, of more than one column."""
    separators = _SEPARATORS[1:] if _DECIMALS.fullmatch(sample) else _SEPARATORS
    best, found = (0, 0), separators[0]
    for separator in separators:
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
            if any(map(str.strip, row)):
                yield row
                number += 1
    except csv.Error:
        raise FileRejected(
            f"in row {number} a quote does not end, or has something behind it, or a cell is longer"
            f" than {limits.max_row_bytes} characters"
        ) from None
