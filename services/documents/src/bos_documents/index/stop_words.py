"""Stop words, as the BM25 vectors of the index leave them out."""

from __future__ import annotations

import qdrant_edge


class StopWords:
    """Whether a word is left out of BM25 vectors.

    Args:
        language: Of the index.
    """

    def __init__(self, language: str = "english") -> None:
        self._bm25 = qdrant_edge.Bm25(qdrant_edge.Bm25Config(language=language))

    def __call__(self, word: str) -> bool:
        """Whether it is."""
        return not self._bm25.embed_query(word).indices
