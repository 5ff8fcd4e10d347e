"""Citations of an answer held against the texts that it cites: markers, quotations. Pure.

Texts are passages of documents, pages of the web and the like, shown to a model with numbers
from 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_MARKERS = re.compile(r"\s?\[(\d{1,4}(?:\s*,\s*\d{1,4})*)\]")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^\W\d_a-z])|\n+")
_WORD = re.compile(r"\w{3,}")
_MIN_QUOTE_CHARS = 12
_MAX_QUOTE_CHARS = 500
_MAX_SENTENCE_CHARS = 400


@dataclass(frozen=True, slots=True)
class Cited:
    """An answer whose markers all point to passages that were shown."""

    text: str
    """Markers renumbered from 1 in the order of their first use."""
    numbers: tuple[int, ...]
    """The passage of each marker, as it was shown: the first is that of ``[1]``."""
    unknown: int
    """Markers dropped because no passage has their number."""


def checked_markers(answer: str, shown: int) -> Cited:
    """Drop markers of passages that were not shown and number the others from 1.

    Args:
        answer: With ``[n]`` or ``[n, m]`` after its statements.
        shown: How many passages were shown; their numbers are 1 to ``shown``.
    """
    order: dict[int, int] = {}
    unknown = 0

    def renumbered(found: re.Match[str]) -> str:
        nonlocal unknown
        lead = found[0][: found[0].index("[")]
        markers = []
        for number in map(int, found[1].split(",")):
            if 1 <= number <= shown:
                markers.append(f"[{order.setdefault(number, len(order) + 1)}]")
            else:
                unknown += 1
        return lead + "".join(dict.fromkeys(markers)) if markers else ""

    text = _MARKERS.sub(renumbered, answer).strip()
    return Cited(text, tuple(order), unknown)


def found_quotes(
    quotations: Iterable[tuple[int, str]], texts: Mapping[int, str]
) -> tuple[dict[int, str], int]:
    """Quotations that stand in their passages, as they stand there, and how many do not.

    White space, case and the form of quotation marks and dashes may differ.

    Args:
        quotations: Number of the passage and the words, as the model gave them.
        texts: Text of the passages by their number.
    """
    found: dict[int, str] = {}
    missing = 0
    for number, quote in quotations:
        place = _place(quote, texts.get(number, ""))
        if place is None:
            missing += 1
        else:
            found.setdefault(number, place[:_MAX_QUOTE_CHARS])
    return found, missing


def quoted_answer(question: str, texts: Sequence[str], *, most: int = 3) -> list[tuple[int, str]]:
    """Sentences that share most words with the question, one per passage: number and sentence.

    The answer where no model words one. Passages keep their order, since the search knows more of
    meaning than shared words tell.
    """
    asked = {word.lower() for word in _WORD.findall(question)}
    best = []
    for number, text in enumerate(texts[:most], start=1):
        sentences = [part.strip() for part in _SENTENCE.split(text) if part.strip()]
        if sentences:
            best.append((number, max(sentences, key=lambda each: _shared(each, asked))))
    return [(number, _cut(sentence)) for number, sentence in best]


def _shared(sentence: str, asked: set[str]) -> int:
    return len(asked & {word.lower() for word in _WORD.findall(sentence)})


def _cut(sentence: str) -> str:
    if len(sentence) <= _MAX_SENTENCE_CHARS:
        return sentence
    return sentence[: _MAX_SENTENCE_CHARS - 1] + "…"


def _place(quote: str, text: str) -> str | None:
    """The part of ``text`` that ``quote`` repeats."""
    words = quote.strip(" \t\n\"'“”‘’…").split()
    if sum(map(len, words)) < _MIN_QUOTE_CHARS:
        return None
    pattern = r"\s+".join(_loose(word) for word in words)
    found = re.search(pattern, text, re.IGNORECASE)
    return None if found is None else found[0]


def _loose(word: str) -> str:
    """A word whose quotation marks and dashes may be of another form."""
    pattern = re.escape(word)
    for forms in ("'‘’", '"“”„', "-–—"):
        loose = "[" + re.escape(forms) + "]"
        for form in forms:
            pattern = pattern.replace(re.escape(form), loose) if form in word else pattern
            if form in word:
                break
    return pattern
