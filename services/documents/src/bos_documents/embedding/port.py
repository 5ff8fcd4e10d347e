"""Interface of embedding models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Vector = tuple[float, ...]
"""An embedding, of length 1."""


class Embedder(Protocol):
    """An embedding model; safe to share between tasks."""

    @property
    def model(self) -> str:
        """Name with its revision: equal names mean comparable vectors."""
        ...

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        ...

    @property
    def in_process(self) -> bool:
        """Whether embedding is work of this process; else it is a call, which may be paid for."""
        ...

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        """Embeddings of what is searched, in the order of ``texts``.

        Raises:
            BosError: the model cannot be used; ``Unavailable`` if later it may be.
        """
        ...

    async def embed_query(self, text: str) -> Vector:
        """Embedding of a question, not queued behind passages.

        Raises:
            BosError: as for :meth:`embed_passages`.
        """
        ...

    async def close(self) -> None:
        """Release threads and memory."""
        ...
