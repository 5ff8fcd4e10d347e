"""Interface of what ranks the passages that a search found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos_documents.index.port import Legs


class RankBy(StrEnum):
    """How the legs of a search become one ranking."""

    DENSE = "dense"
    SPARSE = "sparse"
    RRF = "rrf"
    BLEND = "blend"


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
