"""What calamine leaves out of workbooks: padded numbers, formulas without a value, merged cells.

Read from the XML of XLSX and ODS by patterns and by expat; nothing is resolved or fetched.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
from dataclasses import dataclass, field
from typing import Final
from xml.etree import ElementTree

from bos_files.queries.rejections import FileRejected

_PADDED: Final = re.compile(r"0{2,20}")
"""Formats of postal codes and numbers of articles."""
_CELL: Final = re.compile(
    rb'<(?:\w+:)?c\s(?=[^>]*?\br="([A-Z]{1,3})(\d{1,7})")(?:[^>]*?\bs="(\d{1,6})")?[^>]*?(?:/>|>(.*?)</(?:\w+:)?c>)',
    re.DOTALL,
)
_FORMULA: Final = re.compile(rb"<(?:\w+:)?f[\s>/]")
_STORED: Final = re.compile(rb"<(?:\w+:)?v>[^<]")
_TABLE: Final = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_MOST: Final = 1_048_576
Range = tuple[tuple[int, int], tuple[int, int]]


@dataclass(slots=True)
class SheetParts:
    """Of one sheet; places are row and column, from 0.

    Attributes:
        padded: how many digits the number at a place is shown with.
        unknown: places of formulas without a stored value.
        merged: first and last place of merged cells; None if calamine knows them.
    """

    padded: dict[tuple[int, int], int] = field(default_factory=dict)
    unknown: list[tuple[int, int]] = field(default_factory=list)
    merged: list[Range] | None = None


def sheet_parts(archive: zipfile.ZipFile) -> dict[str, SheetParts]:
    """Return the parts of each sheet by its name; none for other formats than XLSX and ODS.

    Raises:
        FileRejected: the XML is damaged, or holds a document type definition.
    """
    names = set(archive.namelist())
    if "xl/workbook.xml" in names:
        padded = _padded_styles(archive) if "xl/styles.xml" in names else {}
        return {
            title: _of_xlsx(archive.read(part), padded)
            for title, part in _xlsx_sheets(archive).items()
            if part in names
        }
    if "content.xml" in names:
        return _of_ods(archive.read("content.xml"))
    return {}


def _xml(content: bytes) -> ElementTree.Element:
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content or b"\0" in content[:512]:
        raise FileRejected("it holds constructions that no office program writes")
    try:
        return ElementTree.fromstring(content)  # noqa: S314 - no definitions get here
    except (ElementTree.ParseError, ValueError, LookupError):
        raise FileRejected("it is damaged") from None


def _xlsx_sheets(archive: zipfile.ZipFile) -> dict[str, str]:
    """Part of each sheet, by its name."""
    try:
        links = _xml(archive.read("xl/_rels/workbook.xml.rels"))
    except KeyError:
        return {}
    targets = {
        each.get("Id", ""): posixpath.normpath(
            posixpath.join("/xl", each.get("Target", ""))
        ).lstrip("/")
        for each in links
    }
    sheets = {}
    for each in _xml(archive.read("xl/workbook.xml")).iter():
        if each.tag.endswith("}sheet"):
            link = next((value for key, value in each.items() if key.endswith("}id")), "")
            sheets[each.get("name", "")] = targets.get(link, "")
    return sheets


def _padded_styles(archive: zipfile.ZipFile) -> dict[int, int]:
    """Styles of cells that show numbers with leading zeros: how many digits there are."""
    root = _xml(archive.read("xl/styles.xml"))
    formats = {
        each.get("numFmtId", ""): each.get("formatCode", "")
        for each in root.iter()
        if each.tag.endswith("}numFmt")
    }
    styles = next((each for each in root if each.tag.endswith("}cellXfs")), ())
    codes = [formats.get(each.get("numFmtId", ""), "") for each in styles]
    return {at: len(code) for at, code in enumerate(codes) if _PADDED.fullmatch(code)}


def _of_xlsx(content: bytes, padded: dict[int, int]) -> SheetParts:
    found = SheetParts()
    if not padded and not _FORMULA.search(content):
        return found
    for column, row, style, inner in _CELL.findall(content):
        place = (int(row) - 1, _column(column))
        if style and (digits := padded.get(int(style))):
            found.padded[place] = digits
        if _FORMULA.search(inner) and not _STORED.search(inner) and b"<is>" not in inner:
            found.unknown.append(place)
    return found


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number - 1


def _of_ods(content: bytes) -> dict[str, SheetParts]:
    found = {}
    for table in _xml(content).iter(f"{_TABLE}table"):
        merged: list[Range] = []
        at = 0
        for row in table.iter(f"{_TABLE}table-row"):
            place = 0
            for cell in row:
                if span := _span(cell):
                    last = (at + span[0] - 1, place + span[1] - 1)
                    merged.append(((at, place), last))
                place += _count(cell, "number-columns-repeated")
            at += _count(row, "number-rows-repeated")
        found[table.get(f"{_TABLE}name", "")] = SheetParts(merged=merged)
    return found


def _span(cell: ElementTree.Element) -> tuple[int, int] | None:
    rows, columns = (_count(cell, f"number-{each}-spanned") for each in ("rows", "columns"))
    return (rows, columns) if rows > 1 or columns > 1 else None


def _count(element: ElementTree.Element, name: str) -> int:
    value = element.get(f"{_TABLE}{name}", "1")
    return min(int(value), _MOST) if value.isascii() and value.isdigit() and len(value) < 9 else 1
