"""Fusion of the legs of a search into one ranking; pure.

Two ways to fuse, and a boost on top of either:

* reciprocal rank fusion: ``sum of 1 / (k + rank)`` over the legs, ranks from 1. It knows no scores,
  so a lucky second place counts as much as a certain one;
* score-aware blend: the scores of each leg relative to its best one, weighted and added. A chunk
  that a leg did not find has 0 there. BM25 counts by the square of its lexical coverage: much where
  the words of the question are found, little where it was asked in other words;
* boost: chunks whose text holds an identifier of the question as a whole rise by a fixed part of
  the best fused score for each rare one they hold. An identifier that more than a quarter of the
  candidates hold counts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bos_documents.index.port import Legs, Scored
from bos_documents.search.identifiers import holds, identifiers

_RARE_SHARE: Final = 0.25
_RARE_COUNT: Final = 3
"""Candidates that may always hold an identifier, however few there are."""


class Method(StrEnum):
    """How legs are fused."""

    RRF = "rrf"
    BLEND = "blend"
    DENSE = "dense"
    """The dense leg alone."""
    SPARSE = "sparse"
    """The BM25 leg alone."""


@dataclass(frozen=True, slots=True)
class FusionRule:
    """How legs are fused; the evaluation of retrieval decides the defaults.

    Raises:
        ValueError: a number is out of range.
    """

    method: Method = Method.BLEND
    k: int = 60
    """Of reciprocal rank fusion: the larger, the less the first ranks stand out."""
    dense_weight: float = 0.3
    """Of the blend; BM25 has the rest, as far as it covers the question."""
    identifier_boost: float = 1.0
    """Part of the best fused score that each rare identifier adds; 0 for none."""

    def __post_init__(self) -> None:
        if self.k < 1 or not 0 <= self.dense_weight <= 1 or self.identifier_boost < 0:
            raise ValueError("k from 1, dense_weight from 0 to 1, identifier_boost from 0")


@dataclass(frozen=True, slots=True)
class Fused:
    """A chunk of the fused ranking, with what its score is made of."""

    chunk_id: str
    score: float
    """From 0 to 1, where 1 is the best that this rule can give."""
    dense: float | None = None
    """Score in the dense leg; None if it is not there."""
    sparse: float | None = None
    matched: tuple[str, ...] = ()
    """Rare identifiers of the question that its text holds."""


def fuse(
    legs: Legs,
    rule: FusionRule | None = None,
    *,
    question: str = "",
    texts: Mapping[str, str] | None = None,
    coverage: float = 1.0,
    limit: int | None = None,
) -> list[Fused]:
    """One ranking, best first, each chunk once; ties in the order of chunk ids.

    Args:
        legs: What the index found.
        rule: How to fuse; None: the defaults.
        question: Where identifiers are looked for.
        texts: Folded texts of the candidates by chunk id, for the boost; None: there is no boost.
        coverage: Lexical coverage of the question by the BM25 leg, 0 to 1; for the blend.
        limit: Longest ranking; None: all.
    """
    rule = rule or FusionRule()
    dense, sparse = _by_id(legs.dense), _by_id(legs.sparse)
    scores = _scores(dense, sparse, rule, coverage)
    boosted = rule.identifier_boost and rule.method not in (Method.DENSE, Method.SPARSE)
    matched = _matches(scores, identifiers(question), texts or {}) if boosted else {}
    # Scaled, so that scores of one rule are comparable whether or not something was boosted.
    most = max((len(found) for found in matched.values()), default=0)
    top = max(scores.values(), default=0.0)
    scale = 1 + rule.identifier_boost * most
    for chunk_id, held in matched.items():
        scores[chunk_id] += rule.identifier_boost * top * len(held)
    best = sorted(scores, key=lambda chunk_id: (-scores[chunk_id], chunk_id))[:limit]
    return [
        Fused(
            chunk_id,
            scores[chunk_id] / scale,
            dense.get(chunk_id),
            sparse.get(chunk_id),
            matched.get(chunk_id, ()),
        )
        for chunk_id in best
    ]


def _by_id(leg: Sequence[Scored]) -> dict[str, float]:
    """Scores by id, best first; of a chunk that is there twice, the better one."""
    scores: dict[str, float] = {}
    for each in sorted(leg, key=lambda each: (-each.score, each.chunk_id)):
        scores.setdefault(each.chunk_id, each.score)
    return scores


def _scores(
    dense: Mapping[str, float], sparse: Mapping[str, float], rule: FusionRule, coverage: float
) -> dict[str, float]:
    if rule.method is Method.DENSE:
        return _scaled(dense)
    if rule.method is Method.SPARSE:
        return _scaled(sparse)
    if rule.method is Method.RRF:
        # Of 1 if first in both legs.
        best = 2 / (rule.k + 1)
        parts = [
            (chunk_id, 1 / (rule.k + rank) / best)
            for leg in (dense, sparse)
            for rank, chunk_id in enumerate(leg, 1)
        ]
    else:
        # Without the dense leg there is nothing that words could be weighed against.
        covered = coverage**2 if dense else 1.0
        weights = (rule.dense_weight, (1 - rule.dense_weight) * covered)
        parts = [
            (chunk_id, weight * score)
            for leg, weight in zip((dense, sparse), weights, strict=True)
            for chunk_id, score in _scaled(leg).items()
        ]
    scores: dict[str, float] = {}
    for chunk_id, part in parts:
        scores[chunk_id] = scores.get(chunk_id, 0.0) + part
    return scores


def _scaled(leg: Mapping[str, float]) -> dict[str, float]:
    """Scores between 0 and 1: relative to the best, from the lower of 0 and the worst."""
    if not leg:
        return {}
    low, high = min(0.0, *leg.values(), 0.0), max(leg.values())
    spread = high - low
    return {chunk_id: (score - low) / spread if spread else 1.0 for chunk_id, score in leg.items()}


def _matches(
    scores: Mapping[str, float], wanted: Sequence[str], texts: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """Rare identifiers by the chunk that holds them."""
    matched: dict[str, tuple[str, ...]] = {}
    most = max(_RARE_COUNT, int(len(scores) * _RARE_SHARE))
    for identifier in wanted:
        holders = [each for each in scores if each in texts and holds(texts[each], identifier)]
        if len(holders) <= most:
            for chunk_id in holders:
                matched[chunk_id] = (*matched.get(chunk_id, ()), identifier)
    return matched
