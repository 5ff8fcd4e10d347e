"""Writer of XLSX files: a sheet for each section."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from bos_demo.documents.packages import RELATIONS, package, relations
from bos_demo.documents.sources import Block, Heading, Source, Table

_S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_STYLES = (
    f'<styleSheet {_S}><fonts count="1"><font><sz val="11"/><name val="Calibri"/></font></fonts>'
    '<fills count="1"><fill><patternFill patternType="none"/></fill></fills>'
    '<borders count="1"><border/></borders><cellStyleXfs count="1"><xf/></cellStyleXfs>'
    '<cellXfs count="1"><xf/></cellXfs></styleSheet>'
)


def write_xlsx(source: Source) -> bytes:
    """Return the document as XLSX; a heading of level 2 begins a sheet and names it."""
    sheets = _sheets(source.blocks)
    listed = "".join(
        f'<sheet name={quoteattr(name[:31])} sheetId="{at}" r:id="rId{at}"/>'
        for at, name in enumerate(sheets, 1)
    )
    targets = [("worksheet", f"worksheets/sheet{at}.xml") for at in range(1, len(sheets) + 1)]
    parts = {
        "xl/workbook.xml": f'<workbook {_S} xmlns:r="{RELATIONS}"><sheets>{listed}</sheets>'
        "</workbook>",
        "xl/_rels/workbook.xml.rels": relations([*targets, ("styles", "styles.xml")]),
        "xl/styles.xml": _STYLES,
    }
    types = {
        "xl/workbook.xml": f"{_TYPE}.sheet.main+xml",
        "xl/styles.xml": f"{_TYPE}.styles+xml",
    }
    for (_, target), rows in zip(targets, sheets.values(), strict=True):
        written = "".join(_row(number, row) for number, row in enumerate(rows, 1))
        parts[f"xl/{target}"] = f"<worksheet {_S}><sheetData>{written}</sheetData></worksheet>"
        types[f"xl/{target}"] = f"{_TYPE}.worksheet+xml"
    return package("xl/workbook.xml", parts, types, source.title, source.day)


def _sheets(blocks: Sequence[Block]) -> dict[str, list[tuple[str, ...]]]:
    sheets: dict[str, list[tuple[str, ...]]] = {}
    name = "Notes"
    for block in blocks:
        if isinstance(block, Heading) and block.level == 2:
            name = block.text
        elif isinstance(block, Table):
            sheets.setdefault(name, []).extend([*block.rows, ()])
        else:
            sheets.setdefault(name, []).append((block.text,))
    return sheets


def _row(number: int, row: Sequence[str]) -> str:
    cells = "".join(_cell(f"{chr(65 + at)}{number}", text) for at, text in enumerate(row))
    return f'<row r="{number}">{cells}</row>'


def _cell(place: str, text: str) -> str:
    if _NUMBER.fullmatch(text):
        return f'<c r="{place}"><v>{text.replace(",", "")}</v></c>'
    return f'<c r="{place}" t="inlineStr"><is><t>{escape(text)}</t></is></c>'
