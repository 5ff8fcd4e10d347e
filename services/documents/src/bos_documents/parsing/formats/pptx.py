"""PPTX: one page a slide: title, text by position, tables, and the speaker's notes, named as such.

Hidden slides and hidden shapes are left out; footers, dates and slide numbers are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_documents.parsing.archive import Archive
from bos_documents.parsing.blocks import DocumentInfo
from bos_documents.parsing.building import Blocks
from bos_documents.parsing.detect import PPTX
from bos_documents.parsing.formats.office import left_out, metadata
from bos_documents.parsing.formats.source import page_of
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.parsing.text import one_line, title_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

    from bos_documents.parsing.blocks import Page
    from bos_documents.parsing.limits import ParsingLimits

_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_DROPPED = {"ftr", "dt", "sldNum", "hdr", "sldImg"}
_TITLES = {"title", "ctrTitle"}
_ROW_EMU = 200_000
"""Shapes whose tops differ by less stand side by side: 5.5 mm."""


class Slides:
    """A presentation."""

    def __init__(self, data: bytes, limits: ParsingLimits) -> None:
        self._archive = Archive(data, limits)
        self._limits = limits
        root = self._archive.xml("ppt/presentation.xml")
        if root is None:
            raise DocumentRejected("DOCUMENT_DAMAGED")
        relations = self._archive.relations("ppt/presentation.xml")
        ids = [one.get(_ID, "") for one in root.iter(f"{_P}sldId")]
        self._slides = [relations[one][1] for one in ids if one in relations]
        title, date = metadata(self._archive)
        self.info = DocumentInfo(
            PPTX, len(self._slides), title, date, tuple(left_out(self._archive))
        )

    def page(self, number: int) -> Page:
        """A slide."""
        name = self._slides[number - 1]
        root = self._archive.xml(name)
        if root is None:
            raise DocumentRejected("DOCUMENT_DAMAGED")
        if root.get("show") in ("0", "false"):
            return page_of(number, (), notes=(f"Slide {number} is hidden and left out.",))
        blocks = Blocks(self._limits)
        notes = []
        shapes = list(_shapes(root))
        titles = [shape for shape in shapes if _role(shape) in _TITLES]
        for shape in titles:
            blocks.heading(" ".join(_lines(shape)), 1)
        title = title_of(" ".join(_lines(titles[0]))) if titles else ""
        for shape in _ordered([one for one in shapes if one not in titles]):
            if _is_hidden(shape):
                notes.append(f"Slide {number} has hidden shapes, which are left out.")
            elif _role(shape) not in _DROPPED:
                _add(blocks, shape)
        for text in self._spoken(name):
            blocks.paragraph(f"Speaker notes: {text}")
        return page_of(number, blocks.done, title=title, notes=dict.fromkeys(notes))

    def _spoken(self, slide: str) -> list[str]:
        for kind, name in self._archive.relations(slide).values():
            root = self._archive.xml(name) if kind == "notesSlide" else None
            if root is not None:
                bodies = (shape for shape in _shapes(root) if _role(shape) == "body")
                texts = ("\n".join(_lines(shape)) for shape in bodies)
                return [text for text in texts if text.strip()]
        return []


def _shapes(root: Element) -> Iterator[Element]:
    """Shapes and frames, those in groups too."""
    waiting = list(reversed(root.findall(f"{_P}cSld/{_P}spTree/*")))
    while waiting:
        shape = waiting.pop()
        if shape.tag in (f"{_P}sp", f"{_P}graphicFrame", f"{_P}cxnSp"):
            yield shape
        elif shape.tag != _FALLBACK and not _is_hidden(shape):
            waiting.extend(reversed(shape))


def _ordered(shapes: list[Element]) -> list[Element]:
    """By position, row by row; as in the file where a position comes from the layout."""
    places = [_place(shape) for shape in shapes]
    known = [place for place in places if place is not None]
    if len(known) < len(shapes):
        return shapes
    pairs = sorted(zip(known, range(len(shapes)), strict=True))
    ordered: list[tuple[int, int, int]] = []
    row, top = -1, None
    for (y, x), at in pairs:
        if top is None or y - top > _ROW_EMU:
            row, top = row + 1, y
        ordered.append((row, x, at))
    return [shapes[at] for _, _, at in sorted(ordered)]


def _place(shape: Element) -> tuple[int, int] | None:
    offset = shape.find(f"{_P}spPr/{_A}xfrm/{_A}off")
    offset = offset if offset is not None else shape.find(f"{_P}xfrm/{_A}off")
    try:
        return (int(offset.get("y", "")), int(offset.get("x", ""))) if offset is not None else None
    except ValueError:
        return None


def _role(shape: Element) -> str:
    place = shape.find(f"{_P}nvSpPr/{_P}nvPr/{_P}ph")
    return "" if place is None else place.get("type", "body")


def _is_hidden(shape: Element) -> bool:
    return any(
        properties.get("hidden") in ("1", "true") for properties in shape.findall(f"./*/{_P}cNvPr")
    )


def _add(blocks: Blocks, shape: Element) -> None:
    for table in shape.iter(f"{_A}tbl"):
        rows = [
            [_cell(cell) for cell in row.findall(f"{_A}tc")] for row in table.findall(f"{_A}tr")
        ]
        properties = table.find(f"{_A}tblPr")
        first = properties is not None and properties.get("firstRow") in ("1", "true")
        blocks.table(rows, 1 if first else None)
    listed = _role(shape) == "body"
    for paragraph in shape.findall(f"{_P}txBody/{_A}p"):
        text = _paragraph(paragraph)
        properties = paragraph.find(f"{_A}pPr")
        bullet = properties is not None and any(
            properties.find(f"{_A}{name}") is not None for name in ("buChar", "buAutoNum", "buBlip")
        )
        plain = properties is not None and properties.find(f"{_A}buNone") is not None
        if bullet or (listed and not plain):
            blocks.item(text)
        else:
            blocks.paragraph(text)


def _cell(cell: Element) -> str:
    return one_line(" ".join(_paragraph(one) for one in cell.iter(f"{_A}p")))


def _lines(shape: Element) -> list[str]:
    return [text for one in shape.iter(f"{_A}p") if (text := _paragraph(one).strip())]


def _paragraph(paragraph: Element) -> str:
    parts = []
    for element in paragraph.iter():
        if element.tag == f"{_A}t":
            parts.append(element.text or "")
        elif element.tag == f"{_A}br":
            parts.append("\n")
    return "".join(parts)
