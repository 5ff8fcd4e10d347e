"""Names that people and programs give themselves, which others are shown; pure."""

from __future__ import annotations

import unicodedata

from bos_errors import InvalidArgument

_REFUSED_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"})
# Letters by their category, and blank to readers.
_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_MAX_CHARS = 128


def clean_name(field: str, text: str) -> str:
    """``text`` without blanks around it; empty if there is nothing else.

    Raises:
        InvalidArgument: It is too long, or holds control characters, marks that turn the direction
            of writing, or others that are invisible: two names that look the same must be the same.
    """
    trimmed = text.strip()
    if len(trimmed) > _MAX_CHARS:
        raise InvalidArgument.field(field, f"must have at most {_MAX_CHARS} characters")
    if any(map(_is_refused, trimmed)):
        raise InvalidArgument.field(field, "must not contain control or invisible characters")
    return trimmed


def _is_refused(character: str) -> bool:
    return character in _BLANK_LETTERS or unicodedata.category(character) in _REFUSED_CATEGORIES
