"""Parser, chunker, embedding model, index and ranker that the service runs with."""

from __future__ import annotations

from dataclasses import dataclass

from bos_documents import context
from bos_documents.chunking.port import Chunker
from bos_documents.embedding.port import Embedder
from bos_documents.index.port import ChunkIndex
from bos_documents.parsing.port import Parser
from bos_documents.search.ports import Ranker


@dataclass(frozen=True, slots=True)
class Engines:
    """Parser, chunker, embedding model, index and ranker."""

    parser: Parser
    chunker: Chunker
    embedder: Embedder
    index: ChunkIndex
    ranker: Ranker

    @property
    def model(self) -> str:
        """Name of the embedding model and of its input; vectors of equal names are comparable."""
        return f"{self.embedder.model}/{context.VERSION}"
