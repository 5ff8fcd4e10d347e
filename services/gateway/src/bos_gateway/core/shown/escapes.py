r"""Escaping of invisible, bidirectional and confusable characters in displayed text. Pure.

A character that is not seen, or that changes how others are shown, stands as ``\u{HEX}``: also
marks that would be drawn over what stands before a text, or, in heaps, over the lines around it.
So does a backslash that such an escape could be mistaken for (``\u{5C}u{…``): texts that differ are
shown differently.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

_MARK: Final = "\\u{"
"""How an escape begins."""
# By Unicode's general categories: controls, formats (bidi marks, zero-width characters, tags),
# surrogates, private use, unassigned, and separators of lines, paragraphs and words.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
# Invisible though they count as letters, marks or symbols: fillers, joiners, selectors, blanks.
_FILLERS: Final = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164),
            *(*range(0xFE00, 0xFE10), 0xFFA0, 0xFFFC, 0x16FE4, 0x1D159),
            *range(0xE0000, 0xE1000),
        ),
    )
)


# Vietnamese needs two upon a letter, Hebrew three.
_MOST_MARKS: Final = 3


def visible(text: str) -> str:
    """``text`` on one line with everything escaped that is not seen as what it is.

    Line breaks are escaped as well, and spaces at either end.
    """
    if text.isascii() and text.isprintable() and _MARK not in text and text == text.strip(" "):
        return text
    inner = text.strip(" ")
    before = len(text) - len(text.lstrip(" ")) if inner else len(text)
    after = len(text) - len(inner) - before
    mixed = not unicodedata.is_normalized("NFC", inner)
    shown = (_shown(part, mixed=mixed) for part in inner.split(_MARK))
    escaped_mark = _escape(_MARK[0]) + _MARK[1:]
    return _escape(" ") * before + escaped_mark.join(shown) + _escape(" ") * after


def visible_lines(text: str) -> list[str]:
    """The lines of ``text``, each :func:`visible`; spaces at the beginning stay, as in programs."""
    shown = []
    for line in text.split("\n"):
        rest = line.lstrip(" ")
        shown.append(" " * (len(line) - len(rest)) + visible(rest) if rest else visible(line))
    return shown


def _shown(part: str, *, mixed: bool) -> str:
    shown, marks = [], _MOST_MARKS  # nothing is there yet that a mark could belong to
    for each in part:
        marks = marks + 1 if _is_mark(each) else 0
        hidden = _is_hidden(each) or (mixed and _recombines(each)) or marks > _MOST_MARKS
        shown.append(_escape(each) if hidden else each)
    return "".join(shown)


def _escape(character: str) -> str:
    return f"\\u{{{ord(character):X}}}"


@lru_cache(maxsize=4096)
def _is_hidden(character: str) -> bool:
    if character == " ":
        return False
    return character in _FILLERS or unicodedata.category(character) in _HIDDEN


@lru_cache(maxsize=4096)
def _is_mark(character: str) -> bool:
    """Whether it is drawn upon the character before it."""
    return unicodedata.category(character) in ("Mn", "Me")


@lru_cache(maxsize=4096)
def _recombines(character: str) -> bool:
    """Whether it looks the same as other characters do, in a text that is not in normal form C."""
    return bool(unicodedata.combining(character)) or not unicodedata.is_normalized("NFC", character)
