"""XLSX files: the visible sheets, values as they were stored; formulas are never worked out."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Final

import python_calamine

from bos_files.queries.headings import has_headings
from bos_files.queries.limits import QueryLimits
from bos_files.queries.rejections import FileRejected

_MEMBERS: Final = 10_000
_CELLS: Final = 20_000_000
_SAMPLE_ROWS: Final = 100


@dataclass(frozen=True, slots=True)
class Sheet:
    """A sheet: its title, the headings of its columns, and its cells as text."""

    title: str
    titles: list[str]
    rows: list[list[str | None]]


def open_workbook(content: bytes, limits: QueryLimits) -> list[Sheet]:
    """Return the sheets that hold a table, in their order.

    Raises:
        FileRejected: it is no workbook, is encrypted, or unpacks to more than it may.
    """
    _check_archive(content, limits)
    try:
        workbook = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(content))
        visible = [
            each.name
            for each in workbook.sheets_metadata
            if each.visible == python_calamine.SheetVisibleEnum.Visible
            and each.typ == python_calamine.SheetTypeEnum.WorkSheet
        ]
        found = (
            _sheet(name, workbook.get_sheet_by_name(name), limits)
            for name in visible[: limits.max_sheets]
        )
        return [sheet for sheet in found if sheet is not None]
    except python_calamine.CalamineError as error:
        raise FileRejected("it is damaged, or protected by a password") from error


def _check_archive(content: bytes, limits: QueryLimits) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, IndexError) as error:
        raise FileRejected("it is no workbook") from error
    unpacked = sum(member.file_size for member in members)
    if len(members) > _MEMBERS or unpacked > limits.max_unpacked_bytes:
        raise FileRejected("it unpacks to more than it may")


def _sheet(title: str, sheet: python_calamine.CalamineSheet, limits: QueryLimits) -> Sheet | None:
    if sheet.total_height * sheet.total_width > _CELLS or sheet.height > limits.max_file_rows:
        raise FileRejected(f"its sheet {title!r} has too many cells")
    rows = [[_text(cell) for cell in row] for row in sheet.to_python(skip_empty_area=True)]
    rows = [row for row in rows if any(row)]
    width = max((_width(row) for row in rows), default=0)
    if not width:
        return None
    if width > limits.max_file_columns:
        raise FileRejected(
            f"its sheet {title!r} has {width} columns, and at most {limits.max_file_columns} may be"
        )
    rows = [row[:width] + [None] * (width - len(row)) for row in rows]
    headed = has_headings([[cell or "" for cell in row] for row in rows[:_SAMPLE_ROWS]])
    titles = [cell or "" for cell in rows[0]] if headed else [""] * width
    return Sheet(title, titles, rows[1:] if headed else rows)


def _width(row: list[str | None]) -> int:
    return max((place for place, cell in enumerate(row, 1) if cell), default=0)


def _text(cell: Any) -> str | None:
    """A cell as a CSV file would hold it; numbers without the fraction that XLSX adds."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 1e15 else repr(cell)
    if isinstance(cell, datetime):
        return cell.isoformat(" ")
    if isinstance(cell, date | time):
        return cell.isoformat()
    if isinstance(cell, timedelta):
        return str(cell)
    return str(cell).replace("\0", "") or None
