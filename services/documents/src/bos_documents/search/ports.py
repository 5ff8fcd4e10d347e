"""Interfaces of a search: the engines that it uses, and what ranks the passages found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from bos_documents.embedding.port import Embedder
from bos_documents.index.port import ChunkIndex, Legs
from bos_documents.settings import RankBy


@dataclass(frozen=True, slots=True)
class Ranked:
    """A passage of the ranking."""

    chunk_id: str
    score: float
    dense: float | None
    """Score in the dense leg; None if it is not there."""
    sparse: float | None


@dataclass(frozen=True, slots=True)
class Ranking:
    """Passages of a search in order."""

    passages: Sequence[Ranked]
    """Best first, each once; ties in the order of chunk ids."""
    coverage: float
    """Share of the query's words that the best passage holds, rare ones counting more; 0 to 1."""


class Ranker(Protocol):
    """Makes one ranking of two; pure."""

    def __call__(
        self,
        legs: Legs,
        by: RankBy,
        *,
        query: str,
        texts: Mapping[str, str],
        limit: int,
        coverage: float | None = None,
    ) -> Ranking:
        """The ranking of what a search found.

        Args:
            legs: What each leg found.
            by: How to rank.
            query: What was asked for.
            texts: Texts of the passages in their context, by chunk id.
            limit: Most passages.
            coverage: Of the query by another leg, to rank by; None: by this one.
        """
        ...


class SearchEngines(Protocol):
    """What a search uses of the engines."""

    @property
    def embedder(self) -> Embedder:
        """Embeds the query."""
        ...

    @property
    def index(self) -> ChunkIndex:
        """Finds candidates."""
        ...

    @property
    def ranker(self) -> Ranker:
        """Ranks them."""
        ...

    @property
    def model(self) -> str:
        """Name under which vectors of the present embedding model are stored."""
        ...


class RemoveOrphans(Protocol):
    """Removes vectors that belong to no chunk of any reading."""

    async def __call__(self, user_id: str, model: str, chunk_ids: Sequence[UUID]) -> None:
        """Remove those of ``chunk_ids`` that are orphans.

        Raises:
            BosError: store or index do not answer; the next search finds them again.
        """
        ...
