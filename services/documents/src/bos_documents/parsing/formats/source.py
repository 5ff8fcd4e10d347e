"""What a parser offers: an opened document, whose pages are read one by one and in any order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from bos_documents.parsing.blocks import Block, DocumentInfo, Page, PageText


class Source(Protocol):
    """An opened document."""

    @property
    def info(self) -> DocumentInfo:
        """What is known before its pages are read."""

    def page(self, number: int) -> Page:
        """Page ``number``, from 1."""


class OnePage:
    """A document of a format without pages, read as a whole."""

    def __init__(self, info: DocumentInfo, blocks: Iterable[Block]) -> None:
        self.info = info
        self._blocks = tuple(blocks)

    def page(self, number: int) -> Page:
        """The only page."""
        return page_of(number, self._blocks)


def page_of(
    number: int, blocks: Iterable[Block], *, title: str = "", notes: Iterable[str] = ()
) -> Page:
    """A page of extracted text, or one without text."""
    kept = tuple(blocks)
    text = PageText.EXTRACTED if kept else PageText.NONE
    return Page(number, kept, text, title, tuple(notes))
