"""Interface of what splits documents into passages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from bos_documents.chunking.chunks import TextChunk
from bos_documents.parsing.blocks import Page


class Chunker(Protocol):
    """Splits documents into passages; pure, and called in a thread."""

    def __call__(self, document_id: UUID, pages: Sequence[Page]) -> list[TextChunk]:
        """Passages of all pages, in the order of the document."""
        ...
