"""Tokeniser and stemmer for names, comments and questions."""

from __future__ import annotations

import re
from functools import lru_cache

# customerName, customer_name and "customer names" are the same two words.
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
_EMPTY = frozenset(
    """
    a about all an and any are as at be been but by can could did do does each every find for from
    get give had has have how i if in into is it its list many me much my of on or our over per
    please show than that the their them there these they this those to us was we were what when
    where which who whose will with would you your
    """.split()  # noqa: SIM905  this reads better without a hundred quotes
)
_SHORTEST_STEM = 3
_LONGEST_NAME = 3


def words(text: str) -> list[str]:
    """Tokens of ``text`` in order: stemmed, lower-case, without stop words."""
    split = _CAMEL.sub(" ", text)
    found = (match.casefold() for match in _WORD.findall(split))
    return [_stem(word) for word in found if word not in _EMPTY]


def whole(name: str) -> str:
    """``name`` as one term, which :func:`terms` yields for texts with all its words in order."""
    return "=" + " ".join(words(name))


def terms(text: str) -> list[str]:
    """Search terms of ``text``: its tokens, and every sequence of up to three as a name."""
    found = words(text)
    names = (
        "=" + " ".join(found[start : start + size])
        for size in range(1, _LONGEST_NAME + 1)
        for start in range(len(found) - size + 1)
    )
    return [*found, *names]


@lru_cache(maxsize=16_384)
def _stem(word: str) -> str:
    """Stem ``word``: removes plural and participle endings, the same for documents and queries."""
    if not word.isascii() or not word.isalpha():
        return word
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            return _trimmed(word.removesuffix(ending) + instead)
    return _trimmed(word)


_ENDINGS = (
    ("ies", "y"),
    ("sses", "ss"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("xes", "x"),
    ("ss", "ss"),
    ("us", "us"),
    ("is", "is"),
    ("s", ""),
    ("ing", ""),
    ("ed", ""),
)


def _trimmed(word: str) -> str:
    """Remove a final e or doubled letter, so that placed, placing and place are equal."""
    if len(word) > _SHORTEST_STEM and word.endswith("e"):
        return word[:-1]
    if len(word) > _SHORTEST_STEM and word[-1] == word[-2] and word[-1] not in "aeiouls":
        return word[:-1]
    return word
