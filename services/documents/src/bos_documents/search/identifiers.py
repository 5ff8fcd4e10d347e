"""Exact tokens of a question: words that name one thing and have no synonyms."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

_TOKEN: Final = re.compile(r"[^\W_](?:[\w./\-#:]*[^\W_])?")
_CAPITALS: Final = re.compile(r"[A-Z]{2,}")
_SEPARATOR: Final = re.compile(r"[./\-_#:]")
_PLAIN_NUMBER: Final = re.compile(r"\d{1,3}|(?:19|20)\d\d")
_MAX_IDENTIFIERS: Final = 16
_MAX_CHARS: Final = 64
_MIN_CHARS: Final = 3


def identifiers(text: str) -> tuple[str, ...]:
    """Tokens that look like identifiers, in the order of the text, each once, in lower case.

    By shape alone: letters with digits (``A4711``), parts joined by separators of which one has
    digits (``INV-2024-0117``, ``4.12.3``), four digits and more unless they are a year, two
    capitals and more joined to another part (``SLA/GOLD``). Plain words, small numbers and years
    are none.
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
    if token.isalpha() or _PLAIN_NUMBER.fullmatch(token):
        return False
    if any(char.isdigit() for char in token):
        return True
    return bool(_SEPARATOR.search(token) and _CAPITALS.search(token))


def folded(text: str) -> str:
    """A text as it is looked through: one form of each character, in lower case."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def holds(text: str, identifier: str) -> bool:
    """Whether a folded text holds the identifier as a whole: ``a47`` is not in ``a471``."""
    return identifier in text and any(
        not text[end : end + 1].isalnum() for end in _ends(text, identifier)
    )


def holds_form(text: str, prefix: str) -> bool:
    """Whether a word of a folded text begins with ``prefix``."""
    # Behind a space stand nearly all words, and finding one there is several times as fast.
    return f" {prefix}" in text or any(True for _ in _ends(text, prefix))


def _ends(text: str, part: str) -> Iterator[int]:
    """Where occurrences end that begin a word."""
    start = text.find(part)
    while start >= 0:
        if not text[start - 1 : start].isalnum():
            yield start + len(part)
        start = text.find(part, start + 1)
