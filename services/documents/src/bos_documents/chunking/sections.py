"""Sections of a document: runs of blocks under one path of headings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bos_documents.parsing.blocks import Block, BlockKind, Page, PageText

SEPARATOR: Final = "\n\n"
_MAX_TITLE_CHARS: Final = 200
_MAX_LEVEL: Final = 6


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """A block and its span in the document's extracted text."""

    block: Block
    start: int
    end: int
    page: int
    recognised: bool


@dataclass(slots=True)
class Section:
    """Blocks in reading order, the headings that open the section among them."""

    path: tuple[str, ...]
    blocks: list[PlacedBlock] = field(default_factory=list)

    @property
    def has_body(self) -> bool:
        """Whether it holds more than headings."""
        return bool(self.blocks) and self.blocks[-1].block.kind is not BlockKind.HEADING


def document_text(pages: Sequence[Page]) -> str:
    """The extracted text that spans of chunks count in."""
    return SEPARATOR.join(block.text for page in pages for block in page.blocks)


def sections(pages: Sequence[Page]) -> Iterator[Section]:
    """Sections in reading order; blank blocks are left out, no section is empty.

    A heading opens a section. Levels may jump: a heading stands below the nearest one before it of
    a lower level. Headings directly above a deeper one open that one's section with it, instead
    of a section of their own without a body. A page with another title (sheet, slide) opens a
    section too and closes all headings.
    """
    section = Section(())
    headings: list[tuple[int, str]] = []
    title = ""
    for page, placed in _placed(pages):
        if page.title != title:
            title, headings = page.title, []
            if section.blocks:
                yield section
            section = Section(_path(title, headings))
        block = placed.block
        if block.kind is BlockKind.HEADING:
            level = min(max(block.level, 1), _MAX_LEVEL)
            deeper = bool(headings) and level > headings[-1][0]
            while headings and headings[-1][0] >= level:
                headings.pop()
            headings.append((level, block.text))
            path = _path(title, headings)
            if section.blocks and (section.has_body or not deeper):
                yield section
                section = Section(path)
            section.path = path
        section.blocks.append(placed)
    if section.blocks:
        yield section


def _placed(pages: Sequence[Page]) -> Iterator[tuple[Page, PlacedBlock]]:
    start = 0
    for page in pages:
        recognised = page.text is PageText.RECOGNISED
        for block in page.blocks:
            end = start + len(block.text)
            if not block.text.isspace() and block.text:
                yield page, PlacedBlock(block, start, end, page.number, recognised)
            start = end + len(SEPARATOR)


def _path(title: str, headings: Sequence[tuple[int, str]]) -> tuple[str, ...]:
    names = [title, *(text for _, text in headings)]
    # Bounded before white space is joined: a heading may be as long as its document.
    short = (" ".join(name[: 2 * _MAX_TITLE_CHARS].split())[:_MAX_TITLE_CHARS] for name in names)
    return tuple(name for name in short if name)
