"""XLSX: one page a sheet; values as shown, formulas by the value that was stored with them.

Hidden sheets, rows and columns are left out, with a note. Own reading, because the libraries that
were tried show neither hidden rows nor formulas without a stored value when they stream.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from bos_documents.parsing.archive import Archive, elements
from bos_documents.parsing.blocks import DocumentInfo
from bos_documents.parsing.building import Blocks, counted
from bos_documents.parsing.detect import XLSX
from bos_documents.parsing.formats.office import left_out, metadata
from bos_documents.parsing.formats.source import page_of
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.parsing.text import title_of

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from bos_documents.parsing.blocks import Page
    from bos_documents.parsing.limits import ParsingLimits

_M = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_DATES = {*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)}
"""Built-in formats that show a number as a date or a time."""
_QUOTED = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]|_.|\*.')
_ELAPSED = re.compile(r"\[(?:h+|m+|s+)\]", re.IGNORECASE)
_PADDED = re.compile(r"0{2,20}")
_MONTH = re.compile(r"^[^0#?]*m[^0#?]*$")
_MONEY = re.compile(
    r"\[\$([^\]\-]{1,5})(?:-[0-9A-Fa-f]+)?\]|[\"\\]?([$€£¥₹₽₩₺₪]|EUR|USD|GBP|CHF|INR|JPY|CNY|kr|zł|Kč)"
)
_COLUMN = re.compile(r"^\$?([A-Z]{1,3})\$?[0-9]{0,7}$")
_COLUMNS = 16384


class Workbook:
    """A workbook."""

    def __init__(self, data: bytes, limits: ParsingLimits) -> None:
        self._archive = Archive(data, limits)
        self._limits = limits
        root = self._archive.xml("xl/workbook.xml")
        if root is None:
            raise DocumentRejected("DOCUMENT_DAMAGED")
        relations = self._archive.relations("xl/workbook.xml")
        self._sheets: list[tuple[str, str, bool]] = []
        for sheet in root.iter(f"{_M}sheet"):
            kind, name = relations.get(sheet.get(_ID, ""), ("", ""))
            if kind == "worksheet":
                hidden = sheet.get("state", "visible") != "visible"
                self._sheets.append((name, title_of(sheet.get("name")), hidden))
        if not self._sheets:
            raise DocumentRejected("DOCUMENT_DAMAGED")
        properties = root.find(f"{_M}workbookPr")
        since_1904 = properties is not None and properties.get("date1904") in ("1", "true")
        self._epoch = datetime(1904, 1, 1) if since_1904 else datetime(1899, 12, 30)  # noqa: DTZ001 - days have no zone
        self._formats = self._number_formats()
        self._strings: list[str] | None = None
        title, date = metadata(self._archive)
        self.info = DocumentInfo(
            XLSX, len(self._sheets), title, date, tuple(left_out(self._archive))
        )

    def page(self, number: int) -> Page:
        """A sheet."""
        name, title, hidden = self._sheets[number - 1]
        if hidden:
            note = f"Sheet {number} ({title}) is hidden and left out."
            return page_of(number, (), title=title, notes=(note,))
        data = self._archive.read(name)
        sheet = _Sheet(self._limits, _hidden_columns(data))
        for row in elements(data, f"{_M}row"):
            if row.get("hidden") in ("1", "true"):
                sheet.skipped_rows += 1
                continue
            sheet.add(_index(row.get("r")), self._cells(row, sheet))
        sheet.finish()
        return page_of(number, sheet.blocks.done, title=title, notes=sheet.notes(title))

    def _cells(self, row: Element, sheet: _Sheet) -> dict[int, str]:
        cells: dict[int, str] = {}
        column = -1
        for cell in row.iterfind(f"{_M}c"):
            found = _column(cell.get("r", ""))
            column = column + 1 if found is None else found
            value = self._value(cell)
            if not value and cell.find(f"{_M}f") is not None and not cell.findtext(f"{_M}v"):
                sheet.unknown_formulas += 1
            if not value or column >= _COLUMNS:
                continue
            if column in sheet.hidden_columns:
                sheet.skipped_columns.add(column)
            else:
                cells[column] = value
        return cells

    def _value(self, cell: Element) -> str:
        kind = cell.get("t", "n")
        if kind == "inlineStr":
            inline = cell.find(f"{_M}is")
            return _string(inline) if inline is not None else ""
        raw = cell.findtext(f"{_M}v") or ""
        if kind == "s":
            strings = self._shared()
            at = _index(raw)
            return strings[at] if 0 <= at < len(strings) else ""
        if kind == "b":
            return {"0": "FALSE", "1": "TRUE"}.get(raw, raw)
        if kind in ("str", "e", "d"):
            return raw
        return self._number(raw, _index(cell.get("s")))

    def _number(self, raw: str, style: int) -> str:
        try:
            number = float(raw)
        except ValueError:
            return raw
        shown = self._formats[style] if 0 <= style < len(self._formats) else ""
        if shown == "duration":
            return _duration(number)
        if shown.startswith("0"):
            return raw.zfill(len(shown)) if raw.isdigit() else raw
        if shown.startswith("money "):
            return f"{number:.15g} {shown[6:]}"
        if shown == "date" and 0 <= number < 2_958_466:
            return self._date(number)
        if shown == "percent":
            return f"{number * 100:.10g}%"
        # A number is stored as it was computed: 0.1 + 0.2 is shown with fifteen digits.
        return f"{number:.15g}" if abs(number) < 1e15 else raw

    def _date(self, number: float) -> str:
        moment = self._epoch + timedelta(seconds=round(number * 86400))
        if number < 1:
            return moment.strftime("%H:%M:%S").removesuffix(":00")
        date = moment.date().isoformat()
        clock = moment.strftime("%H:%M:%S")
        return date if clock == "00:00:00" else f"{date} {clock.removesuffix(':00')}"

    def _number_formats(self) -> list[str]:
        """For each cell style: "date", "duration", "percent", "money" and its sign, or zeros."""
        root = self._archive.xml("xl/styles.xml")
        if root is None:
            return []
        codes = {
            one.get("numFmtId", ""): one.get("formatCode", "") for one in root.iter(f"{_M}numFmt")
        }
        styles = root.find(f"{_M}cellXfs")
        found = []
        for style in styles if styles is not None else ():
            number = style.get("numFmtId", "0")
            found.append(_kind_of(_index(number), codes.get(number, "")))
        return found

    def _shared(self) -> list[str]:
        if self._strings is None:
            data = self._archive.read("xl/sharedStrings.xml")
            found = (_string(one) for one in elements(data, f"{_M}si")) if data else ()
            self._strings = list(found)
        return self._strings


def _kind_of(number: int, raw: str) -> str:
    """What a format shows a number as; ``raw`` is its code, empty for built-in ones."""
    code = _QUOTED.sub("", raw).lower()
    if number == 46 or _ELAPSED.search(raw):
        return "duration"
    if _PADDED.fullmatch(raw):
        return raw
    dated = any(char in code for char in "ydhs") or _MONTH.search(code)
    if (number in _DATES or dated) and "general" not in code:
        return "date"
    if number in (9, 10) or "%" in code:
        return "percent"
    money = _MONEY.search(raw)
    return f"money {money.group(1) or money.group(2)}" if money else ""


def _duration(number: float) -> str:
    seconds = round(abs(number) * 86400)
    clock = f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
    return f"-{clock}" if number < 0 else clock


class _Sheet:
    """Rows of a sheet; an empty row ends a table."""

    def __init__(self, limits: ParsingLimits, hidden_columns: set[int]) -> None:
        self.blocks = Blocks(limits)
        self.hidden_columns = hidden_columns
        self.skipped_rows = 0
        self.skipped_columns: set[int] = set()
        self.unknown_formulas = 0
        self._limits = limits
        self._rows: list[dict[int, str]] = []
        self._columns: set[int] = set()
        self._last = -1
        self._cells = 0

    def add(self, number: int, cells: dict[int, str]) -> None:
        if not cells or (self._last >= 0 and number > self._last + 1 + self.skipped_rows):
            self.finish()
        if cells:
            self._last = number
            self._rows.append(cells)
            self._columns.update(cells)
            self._cells += len(cells)
            if max(self._cells, len(self._columns) * len(self._rows)) > self._limits.page_cells:
                raise DocumentRejected(
                    "DOCUMENT_TOO_MUCH_TEXT", "A sheet has too many cells; split it."
                )

    def finish(self) -> None:
        order = sorted(self._columns)
        if len(self._rows) == 1 and len(order) == 1:
            self.blocks.paragraph(self._rows[0][order[0]])
        elif self._rows:
            self.blocks.table([[row.get(at, "") for at in order] for row in self._rows])
        self._rows, self._columns = [], set()

    def notes(self, title: str) -> list[str]:
        notes = []
        if self.skipped_rows:
            notes.append(f"{title}: {counted(self.skipped_rows, 'hidden row')} left out.")
        if self.skipped_columns:
            count = len(self.skipped_columns)
            notes.append(f"{title}: {counted(count, 'hidden column')} left out.")
        if self.unknown_formulas:
            what = counted(self.unknown_formulas, "formula")
            notes.append(
                f"{title}: {what} without a stored value left out; open and save the file in a "
                "spreadsheet program to compute them."
            )
        return notes


def _hidden_columns(data: bytes) -> set[int]:
    """Columns that are hidden; they are declared before the rows."""
    hidden: set[int] = set()
    for column in re.findall(rb"<(?:\w+:)?col\s[^>]*>", data.split(b"<sheetData", 1)[0]):
        low, high = (re.search(rb'\s%s="(\d{1,5})"' % key, column) for key in (b"min", b"max"))
        if low and high and re.search(rb'\shidden="(?:1|true)"', column):
            hidden.update(range(int(low[1]) - 1, min(int(high[1]), _COLUMNS)))
    return hidden


def _string(element: Element) -> str:
    """Text of a rich string without its phonetic hints."""
    texts = [element.findtext(f"{_M}t") or ""]
    texts += [run.findtext(f"{_M}t") or "" for run in element.iterfind(f"{_M}r")]
    return "".join(texts)


def _index(value: str | None) -> int:
    return int(value) if value and value.isascii() and value.isdigit() and len(value) < 9 else -1


def _column(reference: str) -> int | None:
    found = _COLUMN.match(reference)
    if found is None:
        return None
    number = 0
    for letter in found.group(1):
        number = number * 26 + ord(letter) - 64
    return number - 1
