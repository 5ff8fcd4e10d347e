"""Plain text, and tables written as text."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence

from striprtf.striprtf import rtf_to_text

from bos_documents.parsing.blocks import DocumentInfo
from bos_documents.parsing.building import Blocks
from bos_documents.parsing.detect import CSV, RTF, TEXT, TSV, delimiter
from bos_documents.parsing.formats.source import OnePage
from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.parsing.text import (
    clean,
    decode,
    heading_level,
    join_lines,
    without_bullet,
)
from bos_encodings import TextReading

_HIDDEN = re.compile(
    r"(?<!\\)\\v1?(?![A-Za-z0-9-]).*?(?=\\v0(?![0-9])|\\plain(?![a-z])|(?<!\\)[{}]|\Z)", re.DOTALL
)
"""Hidden text of Rich Text, up to where it is shown again or a group begins or ends."""
_UNDERLINE = re.compile(r"^(=|-){3,}\s*$")


def open_text(data: bytes, limits: ParsingLimits) -> OnePage:
    """A text: paragraphs are divided by empty lines."""
    reading = decode(data)
    info = DocumentInfo(TEXT, 1, notes=notes_of(reading))
    return OnePage(info, text_blocks(reading.text, limits).done)


def open_table(data: bytes, limits: ParsingLimits, media_type: str) -> OnePage:
    """A table of comma, semicolon, tab or bar separated values."""
    reading = decode(data)
    separator = delimiter(reading.text[:8192]) or ("\t" if media_type == TSV else ",")
    blocks = Blocks(limits)
    blocks.table(list(_rows(reading.text, separator, limits)))
    return OnePage(DocumentInfo(media_type or CSV, 1, notes=notes_of(reading)), blocks.done)


def open_rtf(data: bytes, limits: ParsingLimits) -> OnePage:
    """Rich Text, by striprtf: its text without formats; pictures and hidden text are left out."""
    shown = _HIDDEN.sub("", data.decode("latin-1"))
    text = rtf_to_text(shown, errors="replace")  # type: ignore[no-untyped-call]
    if not text.strip():
        raise DocumentRejected("DOCUMENT_WITHOUT_TEXT")
    notes = ("Tables of Rich Text are read as lines, their cells divided by bars.",)
    paragraphs = text.replace("\n", "\n\n")
    return OnePage(
        DocumentInfo(RTF, 1, notes=notes if "|" in text else ()),
        text_blocks(paragraphs, limits).done,
    )


def notes_of(reading: TextReading) -> tuple[str, ...]:
    """What the owner should know of how a text was decoded."""
    return (reading.note,) if reading.note else ()


def text_blocks(text: str, limits: ParsingLimits) -> Blocks:
    """Blocks of a text without any markup but empty lines, bullets and numbers."""
    blocks = Blocks(limits)
    for lines in _paragraphs(text):
        _add_paragraph(blocks, lines)
    return blocks


def _rows(text: str, separator: str, limits: ParsingLimits) -> Iterator[list[str]]:
    csv.field_size_limit(1 << 20)
    cells = 0
    try:
        for row in csv.reader(
            text.replace("\0", "").splitlines(keepends=True), delimiter=separator
        ):
            cells += len(row)
            if cells > limits.page_cells:
                raise DocumentRejected(
                    "DOCUMENT_TOO_MUCH_TEXT", "The table has too many cells; split it."
                )
            yield row
    except csv.Error as error:
        raise DocumentRejected("DOCUMENT_DAMAGED") from error


def _paragraphs(text: str) -> Iterator[list[str]]:
    lines: list[str] = []
    for raw in re.split(r"\r\n|[\n\r\f\v\x85\u2028\u2029]", text):
        line = clean(raw)
        if line:
            lines.append(raw.rstrip())
        elif lines:
            yield lines
            lines = []
    if lines:
        yield lines


def _add_paragraph(blocks: Blocks, lines: Sequence[str]) -> None:
    plain = [clean(line) for line in lines]
    if len(plain) == 2 and _UNDERLINE.match(plain[1]):
        blocks.heading(plain[0], 1 if plain[1][0] == "=" else 2)
        return
    if len(plain) == 1 and (level := heading_level(plain[0])):
        blocks.heading(plain[0], level)
        return
    if without_bullet(plain[0]) is None:
        at = next(
            (n for n, line in enumerate(plain) if without_bullet(line) is not None), len(plain)
        )
        blocks.paragraph(join_lines(lines[:at]))
        lines = lines[at:]
    item: list[str] = []
    for line in lines:
        bare = without_bullet(clean(line))
        if bare is not None and item:
            blocks.item(join_lines(item))
            item = []
        item.append(line if bare is None else bare)
    if item:
        blocks.item(join_lines(item))
