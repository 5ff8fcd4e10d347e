"""Interface of what reads documents.

A document that cannot be read raises :class:`bos_documents.parsing.rejections.DocumentRejected`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from bos_documents.parsing.blocks import DocumentInfo, Page


class ParserFailed(Exception):
    """A parser failed; the document may be tried again.

    Args:
        reason: Stable UPPER_SNAKE name.
        by_document: Whether the document may be the cause, so that the attempt counts; a parser
            that could not even start says nothing about the document.
    """

    def __init__(self, reason: str, *, by_document: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.by_document = by_document


class ParsedDocument(Protocol):
    """A document that is being read."""

    @property
    def info(self) -> DocumentInfo:
        """What is known before its pages are read."""
        ...

    def pages(self, from_page: int) -> AsyncIterator[Page]:
        """Pages from this one on, which counts from 1.

        Raises:
            DocumentRejected: it cannot be read.
            ParserFailed: its parser failed.
        """
        ...


class Parser(Protocol):
    """Reads documents, apart from this process."""

    def open(self, content: bytes | Path, name: str) -> AbstractAsyncContextManager[ParsedDocument]:
        """A document for the length of the block.

        Raises:
            DocumentRejected: it cannot be read.
            ParserFailed: its parser failed.
        """
        ...
