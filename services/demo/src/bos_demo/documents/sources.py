"""Text sources of the sample company's documents: front matter and a small Markdown.

Front matter has the file's name, title and date; further keys are headers of a mail. The body has
headings (``#`` to ``####``), paragraphs, items (``- `` or ``1. ``) and tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Final

KINDS: Final = ("contracts", "policies", "prices", "minutes", "manuals", "reports", "letters")
"""Folders of the sources."""

_FRONT = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)
_HEADING = re.compile(r"(#{1,4}) (.+)")
_ITEM = re.compile(r"(?:- |(?=\d+\. ))(.+)")
_DIVIDER = re.compile(r"\|[-|: ]+\|")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; level 1 is the title's."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph on one line."""

    text: str


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a list; a numbered one begins with its number."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a table; the first is its header."""

    rows: tuple[tuple[str, ...], ...]


Block = Heading | Paragraph | Item | Table


@dataclass(frozen=True, slots=True)
class Source:
    """One document as text."""

    kind: str
    """Folder it is in, one of `KINDS`."""
    name: str
    """File name, whose ending decides the format."""
    title: str
    day: date
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def format(self) -> str:
        """Ending of the file name, without the dot."""
        return self.name.rpartition(".")[2]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The body, block by block."""
        return tuple(_blocks(self.body))


@cache
def load_sources() -> tuple[Source, ...]:
    """Return every source, in the order of kinds and file names."""
    folder = files("bos_demo") / "documents" / "text"
    return tuple(
        read_source(kind, path.read_text(encoding="utf-8"))
        for kind in KINDS
        for path in sorted((folder / kind).iterdir(), key=lambda each: each.name)
    )


def read_source(kind: str, text: str) -> Source:
    """Parse one source.

    Raises:
        ValueError: it has no front matter, or no name, title or date in it.
    """
    front = _FRONT.match(text)
    if front is None:
        raise ValueError("a source begins with its front matter")
    lines = (line.partition(":") for line in front[1].splitlines())
    values = {key.strip(): value.strip() for key, _, value in lines}
    if missing := {"name", "title", "date"} - values.keys():
        raise ValueError(f"the front matter lacks {', '.join(sorted(missing))}")
    return Source(
        kind=kind,
        name=values.pop("name"),
        title=values.pop("title"),
        day=date.fromisoformat(values.pop("date")),
        body=text[front.end() :],
        headers=values,
    )


def _blocks(body: str) -> Iterator[Block]:
    """Blocks are apart by blank lines, except headings and items, which need none."""
    run: list[str] = []
    for line in [*body.splitlines(), ""]:
        starts = bool(_HEADING.fullmatch(line) or _ITEM.fullmatch(line))
        if run and (not line.strip() or starts or _HEADING.fullmatch(run[0])):
            yield _block(run)
            run = []
        if line.strip():
            run.append(line.strip())


def _block(lines: Sequence[str]) -> Block:
    if heading := _HEADING.fullmatch(lines[0]):
        return Heading(len(heading[1]), heading[2])
    if lines[0].startswith("|"):
        rows = (line for line in lines if not _DIVIDER.fullmatch(line))
        return Table(tuple(tuple(map(str.strip, row.strip("|").split("|"))) for row in rows))
    text = " ".join(lines)
    item = _ITEM.fullmatch(text)
    return Item(item[1]) if item else Paragraph(text)
