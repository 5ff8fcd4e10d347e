"""DOCX: paragraphs, headings by style, lists, tables and footnotes, in the order of the text.

Tracked changes are read as if accepted. Headers stand before the text and footers behind it, each
text once. Hidden text and comments are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bos_documents.parsing.archive import Archive
from bos_documents.parsing.blocks import DocumentInfo
from bos_documents.parsing.building import Blocks
from bos_documents.parsing.detect import DOCX
from bos_documents.parsing.formats.office import left_out, metadata
from bos_documents.parsing.formats.omml import M, linear
from bos_documents.parsing.formats.source import OnePage
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.parsing.text import heading_level, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from bos_documents.parsing.limits import ParsingLimits

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_STRICT = "{http://purl.oclc.org/ooxml/wordprocessingml/main}"
_ALTERNATIVE = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_P, _TBL, _R, _T = f"{_W}p", f"{_W}tbl", f"{_W}r", f"{_W}t"
_DELETED = {f"{_W}del", f"{_W}moveFrom", f"{_W}delText", f"{_W}delInstrText", f"{_W}instrText"}
_OFF = {"0", "false", "off", "none"}
_MAX_DEPTH = 60
_GREEK = dict(zip(b"abgdezhqiklmnxoprstufcyw", "αβγδεζηθικλμνξοπρστυφχψω", strict=True)) | {
    **dict(zip(b"ABGDEZHQIKLMNXOPRSTUFCYW", "ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩ", strict=True)),
    **{0xA3: "≤", 0xB3: "≥", 0xB1: "±", 0xB4: "×", 0xB9: "≠", 0xBB: "≈", 0xA5: "∞", 0xB7: "•"},
    **{0xAE: "→", 0xE5: "∑", 0xF2: "∫", 0xD6: "√", 0xB0: "°", 0xC5: "⊕", 0xCE: "∈"},
}
"""Of Adobe's Symbol, by its encoding vector."""
_PICTURES = {0xFC: "✓", 0xFB: "✗", 0xFE: "☑", 0xFD: "☒", 0xA8: "☐", 0x6F: "☐", 0xE0: "→", 0x4A: "☺"}
"""Of Wingdings."""


@dataclass(slots=True)
class _Style:
    level: int = 0
    listed: bool = False
    hidden: bool = False
    based_on: str = ""


@dataclass(slots=True)
class _Seen:
    """What was left out, or stands there unseen."""

    hidden: bool = False
    deleted: bool = False
    white: bool = False
    symbols: bool = False


@dataclass(slots=True)
class _Text:
    parts: list[str] = field(default_factory=list)
    bold: int = 0
    boxes: list[Element] = field(default_factory=list)


def open_docx(data: bytes, limits: ParsingLimits) -> OnePage:
    """A text document."""
    archive = Archive(data, limits)
    raw = archive.read("word/document.xml")
    if _STRICT[1:-1].encode() in raw[:8192]:
        raise DocumentRejected(
            "DOCUMENT_TYPE_UNSUPPORTED", "Save the file as .docx, not as Strict Open XML."
        )
    root = archive.xml("word/document.xml")
    body = root.find(f"{_W}body") if root is not None else None
    if body is None:
        raise DocumentRejected("DOCUMENT_DAMAGED")
    reader = _Reader(limits, _styles(archive))
    reader.running(archive, "header")
    reader.read(body)
    reader.running(archive, "footer")
    for part in ("footnotes", "endnotes"):
        notes = archive.xml(f"word/{part}.xml")
        for note in notes if notes is not None else ():
            if note.get(f"{_W}type") in (None, "normal"):
                reader.read(note)
    title, date = metadata(archive)
    info = DocumentInfo(DOCX, 1, title, date, (*reader.notes(), *left_out(archive)))
    return OnePage(info, reader.blocks.done)


def _styles(archive: Archive) -> dict[str, _Style]:
    styles: dict[str, _Style] = {}
    root = archive.xml("word/styles.xml")
    for element in root.iter(f"{_W}style") if root is not None else ():
        style = _Style(based_on=_value(element.find(f"{_W}basedOn")))
        name = _value(element.find(f"{_W}name")).lower()
        outline = _value(element.find(f"{_W}pPr/{_W}outlineLvl"))
        if name.startswith("heading ") and name[8:].isdigit():
            style.level = int(name[8:])
        elif name == "title":
            style.level = 1
        elif outline.isdigit() and int(outline) < 9:
            style.level = int(outline) + 1
        style.listed = element.find(f"{_W}pPr/{_W}numPr") is not None or name.startswith("list ")
        style.hidden = _is_on(element.find(f"{_W}rPr/{_W}vanish"))
        styles[element.get(f"{_W}styleId", "")] = style
    return styles


class _Reader:
    def __init__(self, limits: ParsingLimits, styles: dict[str, _Style]) -> None:
        self.blocks = Blocks(limits)
        self._styles = styles
        self._seen = _Seen()

    def notes(self) -> list[str]:
        """What the owner should know."""
        seen = self._seen
        notes = ["Hidden text is left out."] if seen.hidden else []
        notes += ["Tracked changes are read as if accepted."] if seen.deleted else []
        notes += ["Some text is white; it is read like the rest."] if seen.white else []
        notes += ["Some symbols are of a font of pictures and left out."] if seen.symbols else []
        return notes

    def running(self, archive: Archive, kind: str) -> None:
        """Add the texts of headers or footers; equal ones of several sections once."""
        known: set[str] = set()
        for name in sorted(each for each in archive.names if each.startswith(f"word/{kind}")):
            root = archive.xml(name)
            text = "".join(root.itertext()).strip() if root is not None else ""
            if root is not None and text not in known and any(map(str.isalpha, text)):
                known.add(text)
                self.read(root)

    def read(self, container: Element, depth: int = 0) -> None:
        """Add what ``container`` holds."""
        if depth > _MAX_DEPTH:
            raise DocumentRejected("DOCUMENT_TOO_COMPLEX")
        for element in container:
            if element.tag == _P:
                self._paragraph(element, depth)
            elif element.tag == _TBL:
                self._table(element, depth)
            elif element.tag in _DELETED:
                self._seen.deleted = True
            elif element.tag in (
                f"{_W}sdt",
                f"{_W}sdtContent",
                f"{_W}customXml",
                f"{_W}ins",
                f"{_W}moveTo",
            ):
                self.read(element, depth + 1)

    def _paragraph(self, element: Element, depth: int) -> None:
        text = self._text(element)
        line = "".join(text.parts).strip()
        if line:
            level, listed = self._kind(element)
            bold = text.bold >= len(line.replace(" ", "")) and len(line) <= 120
            if not level and not listed and "\n" not in line:
                level = heading_level(one_line(line))
                if not level and bold and line[-1] not in ".;,:":
                    level = 2
            if level:
                self.blocks.heading(line, level)
            elif listed:
                self.blocks.item(line)
            else:
                self.blocks.paragraph(line)
        for box in text.boxes:
            self.read(box, depth + 1)

    def _kind(self, element: Element) -> tuple[int, bool]:
        properties = element.find(f"{_W}pPr")
        if properties is None:
            return 0, False
        listed = _value(properties.find(f"{_W}numPr/{_W}numId")) not in ("", "0")
        own = _value(properties.find(f"{_W}outlineLvl"))
        if own.isdigit() and int(own) < 9:
            return int(own) + 1, False
        for style in self._line_of(_value(properties.find(f"{_W}pStyle"))):
            if style.level:
                return style.level, False
            listed = listed or style.listed
        return 0, listed

    def _line_of(self, name: str) -> Iterator[_Style]:
        """A style and those that it is based on."""
        for _ in range(20):
            style = self._styles.get(name)
            if style is None:
                return
            yield style
            name = style.based_on

    def _text(self, paragraph: Element) -> _Text:
        """Text of a paragraph without what is deleted or hidden, and the boxes anchored in it."""
        found = _Text()
        waiting = list(reversed(paragraph))
        while waiting:
            element = waiting.pop()
            tag = element.tag
            if tag == _R:
                self._run(element, found)
            elif tag == f"{M}oMath":
                found.parts.append(linear(element))
            elif tag in _DELETED:
                self._seen.deleted = True
            elif tag not in (f"{_W}pPr", _ALTERNATIVE):
                waiting.extend(reversed(element))
        return found

    def _run(self, run: Element, found: _Text) -> None:
        properties = run.find(f"{_W}rPr")
        if properties is not None and self._is_hidden(properties):
            self._seen.hidden = self._seen.hidden or next(run.iter(_T), None) is not None
            return
        bold = properties is not None and _is_on(properties.find(f"{_W}b"))
        white = properties is not None and _value(properties.find(f"{_W}color")).upper() == "FFFFFF"
        for element in run:
            part = _ruby(element) or self._symbol(element) or _characters(element)
            if part:
                found.parts.append(part)
                found.bold += len(part.replace(" ", "")) if bold else 0
                self._seen.white = self._seen.white or (white and bool(part.strip()))
            elif len(element):
                found.boxes += _boxes(element)

    def _symbol(self, element: Element) -> str:
        """A character of a font of symbols, where Unicode has it."""
        if element.tag != f"{_W}sym":
            return ""
        code, font = element.get(f"{_W}char", ""), element.get(f"{_W}font", "").lower()
        number = int(code, 16) if re.fullmatch("[0-9A-Fa-f]{2,5}", code) else 0
        if number and not 0xF000 <= number < 0xF100:
            return chr(number) if not 0xD800 <= number < 0xF900 else ""
        low = number & 0xFF
        found = _GREEK.get(low, "") if font == "symbol" else _PICTURES.get(low, "")
        self._seen.symbols = self._seen.symbols or not found
        return found

    def _is_hidden(self, properties: Element) -> bool:
        own = properties.find(f"{_W}vanish")
        if own is not None:
            return _is_on(own)
        style = _value(properties.find(f"{_W}rStyle"))
        return any(one.hidden for one in self._line_of(style)) if style else False

    def _table(self, table: Element, depth: int) -> None:
        rows: list[list[str]] = []
        header = 0
        for row in _parts(table, f"{_W}tr"):
            if row.find(f"{_W}trPr/{_W}del") is not None:
                self._seen.deleted = True
                continue
            cells: list[str] = []
            for cell in _parts(row, f"{_W}tc"):
                merged = cell.find(f"{_W}tcPr/{_W}vMerge")
                goes_on = merged is not None and _value(merged) != "restart"
                cells.append("" if goes_on else self._cell(cell, depth))
                span = _value(cell.find(f"{_W}tcPr/{_W}gridSpan"))
                cells.extend([""] * (min(int(span), 200) - 1 if span.isdigit() else 0))
            if header == len(rows) and _is_on(row.find(f"{_W}trPr/{_W}tblHeader")):
                header += 1
            rows.append(cells)
        self.blocks.table(rows, header or None)

    def _cell(self, cell: Element, depth: int) -> str:
        """Text of a cell; cells of tables in it are divided by bars, their rows by semicolons."""
        if depth > _MAX_DEPTH:
            raise DocumentRejected("DOCUMENT_TOO_COMPLEX")
        texts = []
        for element in cell:
            if element.tag == _P:
                text = self._text(element)
                texts.append("".join(text.parts))
                texts += [self._cell(box, depth + 1) for box in text.boxes]
            elif element.tag == _TBL:
                for row in _parts(element, f"{_W}tr"):
                    inner = [self._cell(one, depth + 1) for one in _parts(row, f"{_W}tc")]
                    texts.append(" | ".join(text for text in inner if text) + ";")
            elif element.tag in (f"{_W}sdt", f"{_W}sdtContent"):
                texts.append(self._cell(element, depth + 1))
        return one_line(" ".join(texts)).rstrip(";")


def _ruby(element: Element) -> str:
    """Text with its reading in brackets."""
    if element.tag != f"{_W}ruby":
        return ""
    base, reading = (
        "".join(
            each.text or "" for part in element.iterfind(f"{_W}{name}") for each in part.iter(_T)
        )
        for name in ("rubyBase", "rt")
    )
    return f"{base}({reading})" if reading else base


def _parts(container: Element, tag: str) -> Iterator[Element]:
    """Rows or cells, also those that stand in a content control."""
    for element in container:
        if element.tag == tag:
            yield element
        elif element.tag == f"{_W}sdt":
            for content in element.iterfind(f"{_W}sdtContent"):
                yield from content.iterfind(tag)


def _characters(element: Element) -> str:
    match element.tag.removeprefix(_W):
        case "t":
            return element.text or ""
        case "tab":
            return "\t"
        case "br" | "cr":
            return "\n"
        case "noBreakHyphen":
            return "-"
    return ""


def _boxes(element: Element) -> list[Element]:
    found = []
    waiting = [element]
    while waiting:
        one = waiting.pop()
        if one.tag == f"{_W}txbxContent":
            found.append(one)
        elif one.tag != _ALTERNATIVE:
            waiting.extend(reversed(one))
    return found


def _value(element: Element | None) -> str:
    return element.get(f"{_W}val", "") if element is not None else ""


def _is_on(element: Element | None) -> bool:
    return element is not None and element.get(f"{_W}val", "1").lower() not in _OFF
