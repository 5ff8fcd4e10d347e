"""Markdown: headings, lists, tables and code, read line by line."""

from __future__ import annotations

import re

from bos_documents.parsing.blocks import DocumentInfo
from bos_documents.parsing.building import Blocks
from bos_documents.parsing.detect import MARKDOWN
from bos_documents.parsing.formats.plain import notes_of
from bos_documents.parsing.formats.source import OnePage
from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.text import decode, join_lines, title_of

_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*$")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s+(.*)$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_DIVIDER = re.compile(r"^\s*\|?\s*:?-{1,}:?\s*(?:\|\s*:?-{1,}:?\s*)*\|?\s*$")
_LINK = re.compile(r"!?\[([^\[\]]{0,500})\]\([^()\s]{0,2000}(?:\s+\"[^\"]{0,300}\")?\)")
_EMPHASIS = re.compile(r"(\*\*|__|~~)(?=\S)(.{1,1000}?)(?<=\S)\1")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_FRONT = re.compile(r"\A---\n(.{0,8192}?)\n---\n", re.DOTALL)


def open_markdown(data: bytes, limits: ParsingLimits) -> OnePage:
    """A Markdown text."""
    reading = decode(data)
    text = reading.text.replace("\r\n", "\n").replace("\r", "\n")
    notes = list(notes_of(reading))
    title = ""
    if front := _FRONT.match(text):
        found = re.search(r"^title:\s*[\"']?(.+?)[\"']?\s*$", front.group(1), re.MULTILINE)
        title = title_of(found.group(1)) if found else ""
        notes.append("The block of metadata at the beginning is left out.")
        text = text[front.end() :]
    text, comments = _COMMENT.subn("", text)
    if comments:
        notes.append("Comments in the text are left out.")
    reader = _Reader(limits)
    for line in text.split("\n"):
        reader.line(line)
    reader.flush()
    return OnePage(DocumentInfo(MARKDOWN, 1, title=title, notes=tuple(notes)), reader.blocks.done)


class _Reader:
    def __init__(self, limits: ParsingLimits) -> None:
        self.blocks = Blocks(limits)
        self._lines: list[str] = []
        self._item = False
        self._fence = ""
        self._table: list[list[str]] = []
        self._header = 0

    def line(self, line: str) -> None:
        if self._fence:
            if line.strip().startswith(self._fence):
                self._fence = ""
                self.blocks.paragraph("\n".join(self._lines))
                self._lines = []
            else:
                self._lines.append(line)
        elif fence := _FENCE.match(line):
            self.flush()
            self._fence = fence.group(1)
        elif self._table and "|" in line:
            self._table.append(_cells(line))
        elif self._lines and not self._item and "|" in line and _DIVIDER.match(line):
            header = self._lines.pop()
            self.flush()
            self._table, self._header = [_cells(header)], 1
        else:
            self._text(line)

    def _text(self, line: str) -> None:
        if self._table:
            self.flush()
        if found := _HEADING.match(line):
            self.flush()
            self.blocks.heading(_inline(found.group(2)), len(found.group(1)))
        elif self._lines and not self._item and re.match(r"^ {0,3}(=+|-{2,})\s*$", line):
            text = join_lines(self._lines)
            self._lines = []
            self.blocks.heading(_inline(text), 1 if "=" in line else 2)
        elif found := _ITEM.match(line):
            self.flush()
            self._item = True
            self._lines = [found.group(1)]
        elif not line.strip():
            self.flush()
        elif not re.match(r"^ {0,3}([-*_])(?:\s*\1){2,}\s*$", line):
            self._lines.append(re.sub(r"^\s*>+\s?", "", line))

    def flush(self) -> None:
        if self._table:
            self.blocks.table(self._table, self._header)
            self._table = []
        elif self._lines:
            text = "\n".join(self._lines) if self._fence else _inline(join_lines(self._lines))
            (self.blocks.item if self._item else self.blocks.paragraph)(text)
            self._lines = []
        self._item = False
        self._fence = ""


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return [_inline(cell.replace("\\|", "|").strip()) for cell in re.split(r"(?<!\\)\|", inner)]


def _inline(text: str) -> str:
    text = _EMPHASIS.sub(r"\2", _LINK.sub(r"\1", text))
    return text.replace("`", "")
