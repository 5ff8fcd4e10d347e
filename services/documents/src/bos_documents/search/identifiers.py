"""Exact tokens of a question: words that name one thing and have no synonyms."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_TOKEN: Final = re.compile(r"[^\W_](?:[\w./\-#:]*[^\W_])?")
_CAPITALS: Final = re.compile(r"[A-Z]{2,}")
_SEPARATOR: Final = re.compile(r"[./\-_#:]")
_PLAIN_NUMBER: Final = re.compile(r"\d{1,3}|(?:19|20)\d\d|\d{1,3}(?:[.,]\d+)+")
_MAX_IDENTIFIERS: Final = 16
_MAX_CHARS: Final = 64
_MIN_CHARS: Final = 3
_MIN_DIGITS: Final = 4


def identifiers(text: str) -> tuple[str, ...]:
    """Tokens that look like identifiers, in the order of the text, each once, in lower case.

    By shape alone: letters with digits (``A4711``), parts joined by separators of which one has
    digits (``INV-2024-0117``), four digits and more unless they are a year, two capitals and more
    joined to another part (``SLA/GOLD``). Plain words, small numbers and years are none.
    """
    found: dict[str, None] = {}
    for match in _TOKEN.finditer(unicodedata.normalize("NFKC", text)):
        token = match.group()
        if _MIN_CHARS <= len(token) <= _MAX_CHARS and is_identifier(token):
            found[token.casefold()] = None
            if len(found) == _MAX_IDENTIFIERS:
                break
    return tuple(found)


def is_identifier(token: str) -> bool:
    """Whether one token has the shape of an identifier."""
    if _PLAIN_NUMBER.fullmatch(token):
        return False
    digits = sum(char.isdigit() for char in token)
    letters = sum(char.isalpha() for char in token)
    if digits and letters:
        return True
    if digits:
        return digits >= _MIN_DIGITS
    return bool(_SEPARATOR.search(token) and _CAPITALS.search(token))


def holds(text: str, identifier: str) -> bool:
    """Whether ``text`` holds the identifier as a whole, in any case: ``A47`` is not in ``A471``."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    start = folded.find(identifier)
    while start >= 0:
        end = start + len(identifier)
        before = folded[start - 1 : start]
        after = folded[end : end + 1]
        if not before.isalnum() and not after.isalnum():
            return True
        start = folded.find(identifier, start + 1)
    return False
