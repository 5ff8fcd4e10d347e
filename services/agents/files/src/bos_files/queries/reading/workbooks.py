"""Workbooks of Excel and OpenDocument: visible sheets, values as stored, merged cells filled.

Formulas are never worked out.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import dropwhile
from typing import Any, Final

import python_calamine

from bos_files.queries.limits import QueryLimits
from bos_files.queries.reading.formats import PATTERNS, STYLES
from bos_files.queries.reading.headings import find_headings
from bos_files.queries.reading.workbook_parts import SheetParts, sheet_parts
from bos_files.queries.rejections import FileRejected

_MEMBERS: Final = 10_000
_CELLS: Final = 20_000_000
_SAMPLE_ROWS: Final = 100
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_SPREADSHEETML: Final = (b"<?xml", b"<html", b"<table", b"\xef\xbb\xbf<")
_YEAR: Final = re.compile(
    r"(?<![^\W_])(?:year|jahr|ann[ée]e|año|ano|anno|jaar|år|vuosi|rok|év|yıl|год|рік|година|έτος"
    r"|سنة|السنة|עام|שנה|वर्ष|ปี)(?![^\W_])|年|연도|년도",
    re.IGNORECASE,
)
"""In the heading of a column of years."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A sheet: its title, the headings of its columns, its cells as text, and notes on them."""

    title: str
    titles: list[str]
    rows: list[list[str | None]]
    notes: list[str]


def open_workbook(content: bytes, limits: QueryLimits) -> list[Sheet]:
    """Return the sheets that hold a table, in their order.

    Raises:
        FileRejected: it is no workbook, is encrypted, or unpacks to more than it may.
    """
    parts = _parts(content, limits)
    try:
        workbook = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(content))
        visible = [
            each.name
            for each in workbook.sheets_metadata
            if each.visible == python_calamine.SheetVisibleEnum.Visible
            and each.typ == python_calamine.SheetTypeEnum.WorkSheet
        ]
        found = (
            _sheet(name, workbook.get_sheet_by_name(name), parts.get(name, SheetParts()), limits)
            for name in visible[: limits.max_sheets]
        )
        return [sheet for sheet in found if sheet is not None]
    except python_calamine.CalamineError as error:
        raise FileRejected("it is damaged, or protected by a password") from error


def _parts(content: bytes, limits: QueryLimits) -> dict[str, SheetParts]:
    if content.startswith(_OLE):
        return {}
    if content.lstrip()[:10].lower().startswith(_SPREADSHEETML):
        raise FileRejected("it is a web page named as a workbook; save it as .xlsx")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            unpacked = sum(member.file_size for member in members)
            if len(members) > _MEMBERS or unpacked > limits.max_unpacked_bytes:
                raise FileRejected("it unpacks to more than it may")
            return sheet_parts(archive)
    except zipfile.BadZipFile as error:
        # A member that is damaged, or the archive: what can be read is for calamine to say.
        if zipfile.is_zipfile(io.BytesIO(content)):
            raise FileRejected("it is damaged") from error
        raise FileRejected("it is no workbook") from error
    except (ValueError, OSError, NotImplementedError, IndexError, RuntimeError) as error:
        raise FileRejected("it is no workbook, or protected by a password") from error


def _sheet(
    title: str, sheet: python_calamine.CalamineSheet, parts: SheetParts, limits: QueryLimits
) -> Sheet | None:
    if sheet.total_height * sheet.total_width > _CELLS or sheet.height > limits.max_file_rows:
        raise FileRejected(f"its sheet {title!r} has too many cells")
    top, left = sheet.start or (0, 0)
    values = sheet.to_python(skip_empty_area=True)
    grid = [
        [_text(cell, parts.padded.get((row, column))) for column, cell in enumerate(cells, left)]
        for row, cells in enumerate(values, top)
    ]
    merged = sheet.merged_cell_ranges if parts.merged is None else parts.merged
    ranges = [
        (first[0] - top, first[1] - left, last[0] - top, last[1] - left)
        for first, last in merged or ()
    ]
    durations = {
        (row, column)
        for row, column, *_ in ranges
        if isinstance(_at(values, row, column), timedelta)
    }
    notes = _filled(grid, ranges, durations)
    kept = [at for at, row in enumerate(grid) if any(row)]
    rows = [grid[at] for at in kept]
    width = max((_width(row) for row in rows), default=0)
    if not width:
        return None
    if width > limits.max_file_columns:
        raise FileRejected(
            f"its sheet {title!r} has {width} columns, and at most {limits.max_file_columns} may be"
        )
    rows = [row[:width] + [None] * (width - len(row)) for row in rows]
    place = {row: at for at, row in enumerate(kept)}
    spans = [
        (place[row], column, min(right, width - 1))
        for row, column, _, right in ranges
        if right > column and row in place
    ]
    sample = [[cell or "" for cell in row] for row in rows[:_SAMPLE_ROWS]]
    found = find_headings(sample, spans)
    if parts.unknown:
        what = "1 formula has" if len(parts.unknown) == 1 else f"{len(parts.unknown)} formulas have"
        notes.append(
            f"{what} no stored value and are read as blank; open and save the file in a spreadsheet"
            " program."
        )
    return Sheet(title, found.titles, rows[found.above + found.rows :], [*found.notes, *notes])


def _filled(
    grid: list[list[str | None]],
    ranges: list[tuple[int, int, int, int]],
    durations: Collection[tuple[int, int]],
) -> list[str]:
    """Fill texts that are merged down into each of their rows, so that rows can be grouped.

    An amount is left in the first row alone: it would be added up again and again. A number is one
    if it is not a year in a column of years.

    Returns:
        Notes on the numbers that were filled, and on those that were not.
    """
    amounts = years = 0
    of_years: dict[int, bool] = {}
    for top, left, bottom, _ in ranges:
        value = _at(grid, top, left)
        if value is None or bottom == top:
            continue
        if (top, left) in durations or _is_number(value):
            if _is_year(value) and left not in of_years:
                of_years[left] = _holds_years([_at(grid, row, left) for row in range(len(grid))])
            if not (_is_year(value) and of_years[left]):
                amounts += 1
                continue
            years += 1
        for row in grid[top : bottom + 1]:
            if left < len(row):
                row[left] = value
    notes = []
    if years:
        what = "1 year is" if years == 1 else f"{years} years are"
        notes.append(f"{what} in cells merged over several rows, and filled into each of them.")
    if amounts:
        what = "1 number is" if amounts == 1 else f"{amounts} numbers are"
        notes.append(
            f"{what} in cells merged over several rows, and read in the first of them alone."
        )
    return notes


def _at(grid: Sequence[Sequence[Any]], row: int, column: int) -> Any:
    inside = 0 <= row < len(grid) and 0 <= column < len(grid[row])
    return grid[row][column] if inside else None


def _is_number(text: str) -> bool:
    """Whether it is a number, or an amount with a unit, as columns of text are read."""
    return any(re.fullmatch(PATTERNS[each], text.strip()) for each in ("double", *STYLES))


def _is_year(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1900 <= int(text) <= 2100


def _holds_years(cells: Sequence[str | None]) -> bool:
    """Whether a column is one of years: its heading says so, or there are several and no others."""
    filled = [cell for cell in cells if cell]
    values = list(dropwhile(lambda cell: not _is_number(cell), filled))
    headed = any(_YEAR.search(cell) for cell in filled[: len(filled) - len(values)])
    return all(map(_is_year, values)) and (headed or len(values) > 1)


def _width(row: list[str | None]) -> int:
    return max((place for place, cell in enumerate(row, 1) if cell), default=0)


def _text(cell: Any, digits: int | None = None) -> str | None:
    """A cell as a CSV file would hold it; numbers without the fraction that XLSX adds.

    ``digits``: of a number that is shown with leading zeros.
    """
    if cell is None or cell == "":
        return None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, int | float):
        if abs(cell) < 1e15 and float(cell).is_integer():
            return str(int(cell)).zfill(digits or 0)
        return repr(cell)
    if isinstance(cell, datetime):
        return cell.isoformat(" ")
    if isinstance(cell, date | time):
        return cell.isoformat()
    if isinstance(cell, timedelta):
        seconds = round(cell.total_seconds())
        sign, seconds = "-" if seconds < 0 else "", abs(seconds)
        return f"{sign}{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
    return str(cell).replace("\0", "") or None
