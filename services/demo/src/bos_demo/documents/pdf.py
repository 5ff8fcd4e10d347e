"""Writer of PDF files: A4 pages of Helvetica, paragraphs and tables never cut by a page's end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bos_demo.documents.sources import Block, Heading, Item, Source, Table

_WIDTH, _HEIGHT = 595, 842
_LEFT, _RIGHT = 62.0, 533.0
_TOP, _BOTTOM = 785.0, 70.0
_BODY, _SMALL = 10.5, 8.0
_HEADINGS: Final = (18.0, 14.0, 12.5, 12.0)
_INDENT = 16.0
_GAP = 14.0
_LEADING = 1.32
_WIDTHS: Final = (
    *(278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278),
    *((556,) * 10),
    *(278, 278, 584, 584, 584, 556, 1015),
    *(667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833),
    *(722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611),
    *(278, 278, 278, 469, 556, 333),
    *(556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833),
    *(556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500),
    *(334, 260, 334, 584),
)
"""Widths of Helvetica's characters from the space on, in thousandths of the size."""


@dataclass(frozen=True, slots=True)
class _Text:
    x: float
    down: float
    """Distance of the base line from the upper edge of its group."""
    text: str
    size: float
    bold: bool = False


@dataclass(slots=True)
class _Group:
    """Texts that stay on one page."""

    texts: list[_Text] = field(default_factory=list)
    height: float = 0.0
    stays_with_next: bool = False


def write_pdf(source: Source) -> bytes:
    """Return the document as PDF."""
    pages = _pages([_group(block) for block in source.blocks])
    for number, page in enumerate(pages, 1):
        foot = f"{source.title}    {number} / {len(pages)}"
        page.append(_Text(_LEFT, _HEIGHT - 40, foot, _SMALL))
    return _file(pages, source)


def width(text: str, size: float) -> float:
    """Return the width of a text in Helvetica."""
    places = (ord(char) - 32 for char in text)
    return sum(_WIDTHS[at] if 0 <= at < len(_WIDTHS) else 556 for at in places) * size / 1000


def _group(block: Block) -> _Group:
    match block:
        case Heading(level, text):
            return _lines(text, _HEADINGS[level - 1], bold=True, above=8.0)
        case Item(text):
            mark = "" if text[0].isdigit() else "• "
            return _lines(mark + text, _BODY, left=_LEFT + _INDENT)
        case Table(rows):
            return _table(rows)
        case _:
            return _lines(block.text, _BODY)


def _lines(
    text: str, size: float, *, left: float = _LEFT, bold: bool = False, above: float = 0.0
) -> _Group:
    # Bold letters are a little wider.
    room = (_RIGHT - left) * (0.92 if bold else 1.0)
    group = _Group(height=above, stays_with_next=bold)
    for line in _wrapped(text, size, room):
        group.height += size * _LEADING
        group.texts.append(_Text(left, group.height, line, size, bold))
    group.height += size * 0.75
    return group


def _wrapped(text: str, size: float, room: float) -> Iterator[str]:
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if line and width(longer, size) > room:
            yield line
            line = word
        else:
            line = longer
    yield line


def _table(rows: Sequence[Sequence[str]]) -> _Group:
    """A row is one line, in letters as small as that takes."""
    columns = [
        max(width(cell, 1.0) for cell in column) * 1.06 for column in zip(*rows, strict=True)
    ]
    room = _RIGHT - _LEFT - _GAP * (len(columns) - 1)
    size = min(9.5, room / sum(columns))
    group = _Group(height=4.0)
    for number, row in enumerate(rows):
        group.height += size * 1.5
        x = _LEFT
        for cell, column in zip(row, columns, strict=True):
            if cell:
                group.texts.append(_Text(x, group.height, cell, size, bold=number == 0))
            x += column * size + _GAP
    group.height += 12.0
    return group


def _pages(groups: Sequence[_Group]) -> list[list[_Text]]:
    """Texts of each page, their base lines measured from the page's upper edge."""
    pages: list[list[_Text]] = [[]]
    down = _HEIGHT - _TOP
    for at, group in enumerate(groups):
        needed = group.height
        if group.stays_with_next and at + 1 < len(groups):
            needed += groups[at + 1].height
        if down + needed > _HEIGHT - _BOTTOM and pages[-1]:
            pages.append([])
            down = _HEIGHT - _TOP
        pages[-1] += [
            _Text(each.x, down + each.down, each.text, each.size, each.bold) for each in group.texts
        ]
        down += group.height
    return pages


def _file(pages: Sequence[Sequence[_Text]], source: Source) -> bytes:
    first = 6
    kids = " ".join(f"{first + 2 * at} 0 R" for at in range(len(pages)))
    day = source.day.strftime("%Y%m%d")
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>".encode(),
        *(
            f"<</Type/Font/Subtype/Type1/BaseFont/{name}/Encoding/WinAnsiEncoding>>".encode()
            for name in ("Helvetica", "Helvetica-Bold")
        ),
        b"<</Title(%s)/CreationDate(D:%s090000Z)>>" % (_escaped(source.title), day.encode()),
    ]
    for at, page in enumerate(pages):
        content = b"\n".join(map(_shown, page))
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 %d %d]/Contents %d 0 R"
            b"/Resources<</Font<</F 3 0 R/B 4 0 R>>>>>>" % (_WIDTH, _HEIGHT, first + 2 * at + 1)
        )
        objects.append(b"<</Length %d>>\nstream\n%s\nendstream" % (len(content), content))
    out = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    for place in places:
        out += b"%010d 00000 n \n" % place
    out += b"trailer\n<</Size %d/Root 1 0 R/Info 5 0 R>>\n" % (len(objects) + 1)
    return bytes(out + b"startxref\n%d\n%%%%EOF\n" % start)


def _shown(text: _Text) -> bytes:
    return b"BT /%s %.2f Tf %.2f %.2f Td (%s) Tj ET" % (
        b"B" if text.bold else b"F",
        text.size,
        text.x,
        _HEIGHT - text.down,
        _escaped(text.text),
    )


def _escaped(text: str) -> bytes:
    encoded = text.encode("cp1252")
    for char in (b"\\", b"(", b")"):
        encoded = encoded.replace(char, b"\\" + char)
    return encoded
