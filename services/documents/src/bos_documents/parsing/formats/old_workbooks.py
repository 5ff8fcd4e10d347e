"""XLS, XLSB and ODS by calamine: one page a visible sheet, values as stored."""

from __future__ import annotations

import io
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import python_calamine

from bos_documents.parsing.blocks import DocumentInfo
from bos_documents.parsing.building import Blocks
from bos_documents.parsing.formats.source import page_of
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.parsing.text import title_of

if TYPE_CHECKING:
    from bos_documents.parsing.blocks import Page
    from bos_documents.parsing.limits import ParsingLimits

_VISIBLE = python_calamine.SheetVisibleEnum.Visible


class OldWorkbook:
    """A workbook; hidden sheets are left out with a note, hidden rows and columns are read."""

    def __init__(self, data: bytes, limits: ParsingLimits, media_type: str) -> None:
        self._limits = limits
        try:
            self._book = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
        except python_calamine.CalamineError as error:
            encrypted = "password" in str(error).lower()
            reason = "DOCUMENT_ENCRYPTED" if encrypted else "DOCUMENT_DAMAGED"
            raise DocumentRejected(reason) from error
        self._sheets = list(self._book.sheets_metadata)
        self.info = DocumentInfo(
            media_type,
            len(self._sheets),
            notes=("Hidden rows and columns are read like the rest.",),
        )

    def page(self, number: int) -> Page:
        """A sheet."""
        sheet = self._sheets[number - 1]
        title = title_of(sheet.name)
        if sheet.visible != _VISIBLE:
            note = f"Sheet {number} ({title}) is hidden and left out."
            return page_of(number, (), title=title, notes=(note,))
        try:
            found = self._book.get_sheet_by_name(sheet.name)
        except python_calamine.CalamineError as error:
            raise DocumentRejected("DOCUMENT_DAMAGED") from error
        if found.height * found.width > self._limits.page_cells:
            raise DocumentRejected(
                "DOCUMENT_TOO_MUCH_TEXT", "A sheet has too many cells; split it."
            )
        blocks = Blocks(self._limits)
        blocks.table([[_text(cell) for cell in row] for row in found.to_python()])
        return page_of(number, blocks.done, title=title)


def _text(cell: Any) -> str:
    match cell:
        case bool():
            return str(cell).upper()
        case int() | float():
            return f"{cell:.15g}" if abs(cell) < 1e15 else repr(cell)
        case datetime():
            return cell.isoformat(" ")
        case date() | time():
            return cell.isoformat()
        case timedelta():
            seconds = round(cell.total_seconds())
            return f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
    return str(cell)
