"""Long texts in parts that a model can take, cut where texts pause. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

# From the best place to cut to the worst: paragraphs, lines, sentences (also of scripts whose
# sentences end without a space), words.
_PAUSES: Final = tuple(
    re.compile(pattern) for pattern in (r"\n\s*\n", r"\n", r"[.!?।…]\s+|[。！？]", r"\s+")
)


def split_text(text: str, limit: int) -> list[str]:
    """``text`` in consecutive parts of at most ``limit`` characters; joined they are the text.

    A part ends at the last paragraph, line, sentence or word that leaves it at least half full,
    in this order, and in the middle of a word only where there is no pause.
    """
    return list(_parts(text, limit))


def _parts(text: str, limit: int) -> Iterator[str]:
    start = 0
    while len(text) - start > limit:
        end = start + _cut(text[start : start + limit])
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _cut(window: str) -> int:
    """Where the window is cut best, after the pause."""
    least = len(window) // 2
    for pause in _PAUSES:
        ends = [found.end() for found in pause.finditer(window, least)]
        if ends:
            return ends[-1]
    return len(window)
