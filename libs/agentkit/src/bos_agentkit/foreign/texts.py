"""Texts of others on their way into cards and prompts: one line, plain, bounded."""

from __future__ import annotations

import re
import unicodedata

_TAG = re.compile(r"<[^<>]{0,200}>")
_MARKUP = str.maketrans(dict.fromkeys("<>`|*#[]{}“”", " "))
_MAX_READ = 10_000


def plain_text(text: object, limit: int) -> str:
    """``text`` without markup and invisible characters, on one line of at most ``limit``.

    Args:
        text: As it was received; empty for what is no text.
        limit: Characters; a longer text ends with an ellipsis.
    """
    if not isinstance(text, str):
        return ""
    visible = "".join(_visible(char) for char in text[:_MAX_READ])
    line = " ".join(_TAG.sub(" ", visible).translate(_MARKUP).split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def is_plain(text: str, limit: int) -> bool:
    """Whether ``text`` may be shown as it is: a value that must not be changed."""
    return 0 < len(text) <= limit and all(_visible(char) == char for char in text)


def _visible(char: str) -> str:
    """The character; a space for control, format and private ones, and for halves of pairs."""
    return " " if unicodedata.category(char)[0] == "C" or char in "\u2028\u2029" else char
