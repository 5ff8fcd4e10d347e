"""Description, kind, topics and date of a document without a model; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from textwrap import shorten
from typing import Final

from bos_documents.store.rows import number_of_date

MAX_DESCRIPTION_CHARS: Final = 600
MAX_TOPICS: Final = 8
MAX_TOPIC_CHARS: Final = 64
MAX_TYPE_CHARS: Final = 64
_MAX_SHOWN_SECTIONS: Final = 5
_MAX_SHOWN_NAME: Final = 80
_MAX_SHOWN_TEXT: Final = 200
_HEAD_CHARS: Final = 4_000
_FIRST_YEAR: Final = 1900
_LAST_YEAR: Final = 2100
_KINDS: Final = (
    ("invoice", r"invoice|rechnung|facture"),
    ("contract", r"contract|agreement|vertrag|terms and conditions"),
    ("policy", r"policy|policies|guideline|richtlinie"),
    ("price list", r"price\s?list|tariff|preisliste"),
    ("meeting notes", r"minutes|meeting notes|protokoll"),
    ("manual", r"manual|user guide|handbook|handbuch|instructions"),
    ("report", r"report|bericht"),
    ("letter", r"dear (?:sir|madam|mr|ms|mrs)|sehr geehrte"),
)
_MONTHS: Final = {
    **{"january": 1, "february": 2, "march": 3, "april": 4, "may": 5, "june": 6, "july": 7},
    **{"august": 8, "september": 9, "october": 10, "november": 11, "december": 12},
}
_MONTH = "|".join(f"{name}|{name[:3]}" for name in _MONTHS)
_DAY = r"(?P<d>\d{1,2})(?:st|nd|rd|th)?"
_DATES: Final = (
    re.compile(r"\b(?P<y>\d{4})-(?P<m>\d{2})-(?P<d>\d{2})\b"),
    re.compile(r"\b(?P<d>\d{1,2})\.\s?(?P<m>\d{1,2})\.\s?(?P<y>\d{4})\b"),
    re.compile(rf"\b{_DAY}\s(?P<n>{_MONTH})\.?,?\s(?P<y>\d{{4}})\b", re.I),
    re.compile(rf"\b(?P<n>{_MONTH})\.?\s{_DAY},?\s(?P<y>\d{{4}})\b", re.I),
)
_WORD: Final = re.compile(r"[^\W\d_]{4,}")
_COMMON: Final = frozenset(
    (
        *("about", "above", "after", "also", "because", "been", "before", "being", "below"),
        *("between", "both", "chapter", "could", "document", "does", "each", "from", "have"),
        *("having", "here", "into", "itself", "more", "most", "must", "only", "other", "over"),
        *("page", "same", "section", "shall", "should", "some", "such", "table", "than", "that"),
        *("their", "them", "then", "there", "these", "they", "this", "those", "through", "under"),
        *("until", "very", "were", "what", "when", "where", "which", "while", "will", "with"),
        *("would", "your", "yours"),
    )
)


@dataclass(frozen=True, slots=True)
class Described:
    """What is said of a document as a whole."""

    description: str
    document_type: str = ""
    topics: tuple[str, ...] = ()
    date: int = 0
    """As YYYYMMDD; 0 if it bears none."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What a description is made of."""

    name: str
    title: str
    media_type: str
    pages: int
    sections: tuple[str, ...]
    """Headings of the document, outermost ones, in its order."""
    text: str
    """Its beginning."""
    file_date: int = 0
    """Date in the file's own metadata, as YYYYMMDD; 0 if there is none."""


def described_by_rule(excerpt: Excerpt) -> Described:
    """Description from title, headings and first words; the same for the same document."""
    head = excerpt.text[:_HEAD_CHARS]
    kind = kind_of(f"{excerpt.name}\n{excerpt.title}\n{head[:600]}")
    title = _shortened(excerpt.title, _MAX_SHOWN_NAME) or _shortened(excerpt.name, _MAX_SHOWN_NAME)
    sections = [_shortened(each, _MAX_SHOWN_NAME) for each in excerpt.sections]
    parts = [f"{(kind or 'document').capitalize()} “{title}”, {_pages(excerpt.pages)}."]
    if sections:
        named = _shortened(", ".join(sections[:_MAX_SHOWN_SECTIONS]), _MAX_SHOWN_TEXT)
        parts.append(f"Sections: {named}.")
    if beginning := _shortened(head, _MAX_SHOWN_TEXT):
        parts.append(f"It begins: {beginning}")
    return Described(
        description=" ".join(parts)[:MAX_DESCRIPTION_CHARS],
        document_type=kind,
        topics=topics_of(excerpt.sections, excerpt.text),
        date=first_date(head) or excerpt.file_date,
    )


def kind_of(text: str) -> str:
    """Kind of document by the first telling word in ``text``; empty if there is none."""
    found = [
        (match.start(), kind)
        for kind, pattern in _KINDS
        if (match := re.search(rf"\b(?:{pattern})\b", text, re.I))
    ]
    return min(found)[1] if found else ""


def topics_of(sections: Sequence[str], text: str) -> tuple[str, ...]:
    """Words that headings and text repeat, most frequent first; headings count three times."""
    counted: Counter[str] = Counter()
    for weight, words in ((3, " ".join(sections)), (1, text)):
        for word in _WORD.findall(words):
            if word.casefold() not in _COMMON:
                counted[word.casefold()] += weight
    frequent = [(-count, word) for word, count in counted.items() if count > 1]
    return tuple(word[:MAX_TOPIC_CHARS] for _, word in sorted(frequent)[:MAX_TOPICS])


def first_date(text: str) -> int:
    """The first date in ``text`` as YYYYMMDD; 0 if there is none.

    Numbers with strokes are left out: whether they begin with the day or the month is not said.
    """
    found: list[tuple[int, int]] = []
    for pattern in _DATES:
        for match in pattern.finditer(text):
            day = _date(match.groupdict())
            if day:
                found.append((match.start(), day))
                break
    return min(found)[1] if found else 0


def topics(given: Iterable[str]) -> tuple[str, ...]:
    """Topics that a model named, bounded, each once."""
    lines = (one_line(each)[:MAX_TOPIC_CHARS].casefold() for each in given)
    return tuple(dict.fromkeys(line for line in lines if line))[:MAX_TOPICS]


def known_date(text: str) -> int:
    """``YYYY-MM-DD`` as YYYYMMDD; 0 if it is something else."""
    try:
        return number_of_date(text.strip())
    except ValueError:
        return 0


def one_line(text: str) -> str:
    """``text`` on one line, without characters that cannot be seen."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _shortened(text: str, most: int) -> str:
    """``text`` on one line of at most ``most`` characters, ended between words where it has any."""
    line = one_line(text)
    short = shorten(line, most, placeholder=" …")
    return short if short != "…" else f"{line[: most - 1]}…"


def _pages(count: int) -> str:
    return "1 page" if count == 1 else f"{count} pages"


def _date(parts: dict[str, str]) -> int:
    name = parts.get("n")
    month = int(parts["m"]) if not name else _month(name)
    try:
        found = date(int(parts["y"]), month, int(parts["d"]))
    except ValueError:
        return 0
    if not _FIRST_YEAR <= found.year <= _LAST_YEAR:
        return 0
    return found.year * 10_000 + found.month * 100 + found.day


def _month(name: str) -> int:
    return next(number for full, number in _MONTHS.items() if full.startswith(name.lower()))
