"""Splitting of text that is longer than a chunk: at sentences, else at words, else anywhere."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Final

_SENTENCE_END: Final = re.compile(r"[.!?…]['\"”’)\]]*\s|[。！？]|\n")
_SPACE: Final = re.compile(r"\s")
_JOINS: Final = frozenset("\u200d\ufe0e\ufe0f")
_CHARS_PER_TOKEN: Final = 6
_MAX_MARKS: Final = 32


def split_span(
    text: str,
    start: int,
    end: int,
    *,
    count: Callable[[str], int],
    limit: int,
    max_chars: int,
) -> Iterator[tuple[int, int]]:
    """Spans of ``text[start:end]``, without white space at their ends, of at most ``limit`` tokens.

    Linear in the length of the text: only windows of at most ``max_chars`` are counted.
    """
    window = min(limit * _CHARS_PER_TOKEN, max_chars)
    begin = _skip_space(text, start, end)
    while begin < end:
        size = min(window, end - begin)
        stop = _boundary(text, begin, begin + size, end)
        while stop - begin > 1 and (tokens := count(text[begin:stop])) > limit:
            shrunk = (stop - begin) * limit * 9 // (tokens * 10)
            size = max(1, min(shrunk, stop - begin - 1))
            stop = _boundary(text, begin, begin + size, end)
        yield begin, _strip_end(text, begin, stop)
        begin = _skip_space(text, stop, end)


def _boundary(text: str, begin: int, stop: int, end: int) -> int:
    """The last good place to cut at or before ``stop``: a sentence's end, else a word's."""
    if stop >= end:
        return end
    earliest = begin + (stop - begin) // 4
    for pattern in (_SENTENCE_END, _SPACE):
        cut = 0
        for match in pattern.finditer(text, earliest, stop):
            cut = match.end()
        if cut > begin:
            return cut
    # Marks stay with the letter before them.
    for back in range(min(_MAX_MARKS, stop - begin - 1)):
        if not unicodedata.combining(text[stop - back]) and text[stop - back] not in _JOINS:
            return stop - back
    return stop


def _skip_space(text: str, begin: int, end: int) -> int:
    while begin < end and text[begin].isspace():
        begin += 1
    return begin


def _strip_end(text: str, begin: int, end: int) -> int:
    while end > begin and text[end - 1].isspace():
        end -= 1
    return end
