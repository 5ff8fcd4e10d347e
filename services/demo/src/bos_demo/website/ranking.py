"""Ranking of the demo's pages for a query: BM25 over title, summary and text. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bos_demo.website.pages import Page

_WORD = re.compile(r"[a-z0-9]+(?:[.,][0-9]+)*")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_COMMON = frozenset(
    {
        *("a", "about", "and", "are", "as", "at", "be", "by", "do"),
        *("for", "from", "has", "have", "in", "is", "it", "its", "more"),
        *("of", "on", "or", "our", "per", "that", "the", "their", "there"),
        *("to", "was", "we", "what", "when", "which", "who", "will", "with"),
    }
)
_K1, _B = 1.4, 0.7
_TITLE_WEIGHT = 3
_HALF_SCORE = 6.0
"""BM25 score that counts as 0.5, since an API's scores go from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A page, how well it fits, and the words of it that fit best."""

    page: Page
    score: float
    snippet: str


class Ranking:
    """An index of some pages."""

    def __init__(self, pages: Sequence[Page]) -> None:
        self._pages = tuple(pages)
        self._counts = [_counts(page) for page in pages]
        self._lengths = [counts.total() for counts in self._counts]
        self._average = sum(self._lengths) / max(1, len(self._lengths))
        self._holding = Counter(word for counts in self._counts for word in counts)

    def search(self, query: str) -> list[Hit]:
        """Pages with a word of the query, best first."""
        asked = set(_words(query))
        scored = [(self._score(place, asked), page) for place, page in enumerate(self._pages)]
        found = sorted((each for each in scored if each[0] > 0), key=lambda each: -each[0])
        return [
            Hit(page, round(score / (score + _HALF_SCORE), 4), _snippet(page, asked))
            for score, page in found
        ]

    def _score(self, place: int, asked: set[str]) -> float:
        counts, length = self._counts[place], self._lengths[place]
        total = 0.0
        for word in asked & counts.keys():
            holding = self._holding[word]
            rarity = math.log(1 + (len(self._pages) - holding + 0.5) / (holding + 0.5))
            weight = counts[word] + _K1 * (1 - _B + _B * length / self._average)
            total += rarity * counts[word] * (_K1 + 1) / weight
        return total


def _counts(page: Page) -> Counter[str]:
    title = _words(page.title) * _TITLE_WEIGHT
    return Counter([*title, *_words(page.summary), *_words(page.text)])


def _words(text: str) -> list[str]:
    found = _WORD.findall(text.lower())
    return [_stem(word) for word in found if word not in _COMMON]


def _stem(word: str) -> str:
    """Plural and singular are one word."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _snippet(page: Page, asked: set[str]) -> str:
    """The summary, and the sentence with most words of the query."""
    sentences = _SENTENCE.split(page.text) if page.kind == "plain" else []
    best = max(sentences, key=lambda each: len(asked & set(_words(each))), default="")
    return f"{page.summary} {best}".strip()[:400]
