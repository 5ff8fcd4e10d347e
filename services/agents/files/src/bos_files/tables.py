"""Tables as CSV and XLSX: values exact, and none of them a formula. Pure.

Programs that open such files run a cell as a formula if it begins with one of ``= + - @``; so texts
of CSV that do get an apostrophe in front (OWASP, CSV injection), and cells of XLSX are
written as texts. Numbers stay numbers: a minus sign before digits alone is harmless.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import xlsxwriter  # type: ignore[import-untyped]

from bos_chassis.values import render_value, to_value
from bos_errors import InvalidArgument

MAX_COLUMNS: Final = 256
MAX_CELL_CHARS: Final = 32_767
"""Maximum characters of an XLSX cell."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
# A double holds any number of this many digits exactly enough to be written back the same.
_EXACT_DIGITS: Final = 15
_FIXED: Final = datetime(2000, 1, 1, tzinfo=UTC)
_WIDTH: Final = (8, 60)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_SHEET_UNFIT: Final = re.compile(r"[\[\]:*?/\\']")
_MAX_SHEET_CHARS: Final = 31
_SAMPLED_ROWS: Final = 200


def table_of(data: Any, columns: Sequence[str] = ()) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of a list of maps, a list of lists or a list of values.

    Args:
        data: The rows.
        columns: Their columns, in this order; empty: as the rows have them.

    Raises:
        InvalidArgument: it is no table; says what would be one.
    """
    if isinstance(data, dict):
        data = data["rows"] if isinstance(data.get("rows"), list) else [data]
    if not isinstance(data, list) or not (data or columns):
        raise InvalidArgument.field("rows", "must be a list of maps, or of lists, and not empty")
    if all(isinstance(row, dict) for row in data):
        names = list(columns) or list(dict.fromkeys(str(name) for row in data for name in row))
        rows = [[row.get(name) for name in names] for row in data]
    elif all(isinstance(row, list) for row in data):
        width = max((len(row) for row in data), default=0)
        names = list(columns) or [f"column {number}" for number in range(1, width + 1)]
        if width > len(names):
            raise InvalidArgument.field("columns", f"must name all {width} columns of the rows")
        rows = [[*row, *[None] * (len(names) - len(row))] for row in data]
    else:
        names, rows = list(columns)[:1] or ["value"], [[value] for value in data]
    if not 0 < len(names) <= MAX_COLUMNS:
        raise InvalidArgument.field("columns", f"must be 1 to {MAX_COLUMNS}")
    return names, rows


def csv_content(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """CSV (RFC 4180) in UTF-8, with the mark by which spreadsheets know the encoding."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([_harmless(name) for name in columns])
    for row in rows:
        writer.writerow([_csv_cell(value) for value in row])
    return text.getvalue().encode("utf-8-sig", "replace")


def xlsx_content(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], sheet: str = "Sheet1"
) -> bytes:
    """A workbook with one sheet, headings frozen; the same table makes the same bytes.

    Numbers with more digits than Excel's numbers hold are texts, so that none of them is lost.
    """
    output = io.BytesIO()
    options = {
        "in_memory": True,
        "strings_to_formulas": False,
        "strings_to_urls": False,
        "strings_to_numbers": False,
        "remove_timezone": False,
        "default_date_format": "yyyy-mm-dd hh:mm:ss",
    }
    with xlsxwriter.Workbook(output, options) as book:
        book.set_properties({"created": _FIXED.replace(tzinfo=None)})
        page = book.add_worksheet(_sheet_name(sheet))
        bold = book.add_format({"bold": True, "bottom": 1})
        day = book.add_format({"num_format": "yyyy-mm-dd"})
        for column, name in enumerate(columns):
            page.write_string(0, column, _cell_text(name), bold)
        for number, row in enumerate(rows, 1):
            for column, value in enumerate(row):
                _write(page, number, column, value, day)
        page.freeze_panes(1, 0)
        for column, width in enumerate(_widths(columns, rows)):
            page.set_column(column, column, width)
    return output.getvalue()


def _write(page: Any, row: int, column: int, value: Any, day: Any) -> None:
    match value:
        case None:
            pass
        case bool():
            page.write_boolean(row, column, value)
        case int() | Decimal() | float():
            if _fits_a_number(value):
                page.write_number(row, column, value)
            else:
                page.write_string(row, column, _plain_text(value))
        case date() if not isinstance(value, datetime) and value.year >= 1900:
            page.write_datetime(row, column, value, day)
        case _:
            page.write_string(row, column, _cell_text(_plain_text(value)))


def _fits_a_number(value: float | Decimal) -> bool:
    number = Decimal(str(value))
    if not number.is_finite():
        return False
    digits = number.normalize().as_tuple()
    assert isinstance(digits.exponent, int)
    whole = len(digits.digits) + max(0, digits.exponent)
    # The shortest text of any float is read back as the same float.
    return isinstance(value, float) or (whole <= _EXACT_DIGITS and abs(number.adjusted()) < 300)


def _csv_cell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal | float):
        return _plain_text(value)
    return "" if value is None else _harmless(_plain_text(value))


def _harmless(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _plain_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return format(value, "f")
    return render_value(to_value(value))


def _cell_text(text: str) -> str:
    clean = _CONTROLS.sub("\ufffd", text)
    return clean if len(clean) <= MAX_CELL_CHARS else clean[: MAX_CELL_CHARS - 1] + "…"


def _sheet_name(wanted: str) -> str:
    name = " ".join(_SHEET_UNFIT.sub(" ", _cell_text(wanted)).split())[:_MAX_SHEET_CHARS].strip()
    return name if name and name.lower() != "history" else "Sheet1"


def _widths(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[int]:
    least, most = _WIDTH
    found = [len(name) for name in columns]
    for row in rows[:_SAMPLED_ROWS]:
        for column, value in enumerate(row):
            found[column] = max(found[column], min(most, len(_plain_text(value or ""))))
    return [min(most, max(least, width + 2)) for width in found]
