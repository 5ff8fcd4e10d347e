"""Words of questions by which similar ones are found. Pure.

No list of words to leave out, and no grammar: questions come in any language. Agents that take
examples know their own data and choose among what is found here.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MAX_WORDS: Final = 64
_MAX_CHARS: Final = 4_000
# So that endings do not count: orders, order; Umsätze, Umsatz are not the same, Kunden, Kunde are.
_STEM_CHARS: Final = 5
_WORD: Final = re.compile(r"[^\W\d_]{2,}")


def words_of(question: str) -> list[str]:
    """Beginnings of the different words of a question, in order; no numbers, 64 at most."""
    text = unicodedata.normalize("NFKC", question[:_MAX_CHARS]).casefold()
    found = (match.group()[:_STEM_CHARS] for match in _WORD.finditer(text))
    return list(dict.fromkeys(found))[:MAX_WORDS]
