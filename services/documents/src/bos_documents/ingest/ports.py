"""Interfaces that the service stands on: parser, chunker, embedding model, index, ranker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bos_documents import context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from uuid import UUID

    from bos_documents.chunking.chunks import TextChunk
    from bos_documents.embedding.port import Embedder
    from bos_documents.index.port import ChunkIndex
    from bos_documents.parsing.blocks import DocumentInfo, Page
    from bos_documents.search.ports import Ranker


class DocumentRejected(Exception):
    """A document cannot be read, and trying again does not help.

    Args:
        reason: Stable UPPER_SNAKE name.
        message: What is wrong and what helps, for the document's owner.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.message = message


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


class Chunker(Protocol):
    """Cuts documents into passages; pure, and called in a thread."""

    def __call__(self, document_id: UUID, pages: Sequence[Page]) -> list[TextChunk]:
        """Passages of all pages, in the order of the document."""
        ...


@dataclass(frozen=True, slots=True)
class Engines:
    """What documents are read, cut, embedded, indexed and ranked by."""

    parser: Parser
    chunker: Chunker
    embedder: Embedder
    index: ChunkIndex
    ranker: Ranker

    @property
    def model(self) -> str:
        """Which embedding model made vectors, and of what: those of equal names are comparable."""
        return f"{self.embedder.model}/{context.VERSION}"
