"""Lexical coverage: how much of a question the words of the best passage account for; pure.

A BM25 score says which passage is better, not whether any is good: the best of a bad lot gets the
same first place. Coverage does: it is the share of the question's words that the best passage
holds, each weighted by how rare it is among the candidates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bos_documents.index.port import Scored
from bos_documents.search.identifiers import folded, holds_form

_WORD: Final = re.compile(r"\w+")
_MAX_WORDS: Final = 32
_PREFIX_CHARS: Final = 6
"""Words with the same prefix count as forms of one, in every language."""
_BEST: Final = 5
"""Passages of the BM25 leg of which the best counts."""


def content_words(question: str, is_stop_word: Callable[[str], bool]) -> tuple[str, ...]:
    """Beginnings of the words of a question that say what it is about, each once.

    Args:
        question: In plain language.
        is_stop_word: Whether a word says nothing, such as ``the``.
    """
    words = (word for word in _WORD.findall(folded(question)) if not is_stop_word(word))
    return tuple(dict.fromkeys(word[:_PREFIX_CHARS] for word in words))[:_MAX_WORDS]


def coverage(words: Sequence[str], leg: Sequence[Scored], texts: Mapping[str, str]) -> float:
    """Share of the words that the best passage of the leg holds, weighted by rarity; 0 to 1.

    The weight of a word is ``log(1 + (n + 0.5) / (held + 0.5))``, where ``held`` of the ``n``
    candidates hold it.

    Args:
        words: From :func:`content_words`.
        leg: The BM25 leg, best first.
        texts: Folded texts of all candidates, by chunk id.
    """
    holders = {
        word: {chunk_id for chunk_id, text in texts.items() if holds_form(text, word)}
        for word in words
    }
    weights = {
        word: math.log(1 + (len(texts) + 0.5) / (len(held) + 0.5)) for word, held in holders.items()
    }
    total = sum(weights.values())
    if not total:
        return 0.0
    best = max(
        (
            sum(weights[word] for word, held in holders.items() if each.chunk_id in held)
            for each in leg[:_BEST]
        ),
        default=0.0,
    )
    return best / total
