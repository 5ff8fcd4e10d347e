"""BM25 ranking over weighted words."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

# The usual constants of BM25: saturation of term frequency, and length normalisation.
_K1 = 1.2
_B = 0.5

Weighted = tuple[float, "Iterable[str]"]
"""Weight and words of a text."""


class Ranking:
    """Inverted index over immutable documents.

    Args:
        documents: Weighted texts of each: a word in a name weighs more than in a comment.
    """

    def __init__(self, documents: Sequence[Iterable[Weighted]]) -> None:
        self._postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        lengths = []
        for place, texts in enumerate(documents):
            counts: Counter[str] = Counter()
            for weight, found in texts:
                for word in found:
                    counts[word] += weight  # type: ignore[assignment]  # weights are fractions
            for word, count in counts.items():
                self._postings[word].append((place, count))
            lengths.append(sum(counts.values()))
        average = sum(lengths) / len(lengths) if lengths else 1.0
        self._norms = [_K1 * (1 - _B + _B * length / (average or 1.0)) for length in lengths]

    def scores(self, query: Iterable[str]) -> dict[int, float]:
        """Scores of documents with a word of ``query``, by position."""
        scores: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(query):
            found = self._postings.get(word, ())
            rarity = math.log(1 + (len(self._norms) - len(found) + 0.5) / (len(found) + 0.5))
            for place, count in found:
                scores[place] += rarity * count * (_K1 + 1) / (count + self._norms[place])
        return dict(scores)
