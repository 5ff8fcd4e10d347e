"""Entities of a question: dates, kinds of documents. Pure, no model.

What is found becomes a filter of the search; names, metrics and other exact terms need none, since
the search by words finds them.
"""

from __future__ import annotations

import calendar
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta

_MONTHS = {
    name.lower(): number
    for names in (calendar.month_name, calendar.month_abbr)
    for number, name in enumerate(names)
    if name
}
_MONTH = "(?P<month>" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + ")"
_YEAR = r"(?P<year>(?:19|20)\d\d)"

DOCUMENT_TYPES = {
    "contract": ("contract", "contracts", "agreement", "agreements"),
    "policy": ("policy", "policies", "guideline", "guidelines"),
    "price_list": ("price list", "price lists", "pricelist"),
    "minutes": ("minutes", "meeting notes", "meeting note"),
    "manual": ("manual", "manuals", "handbook", "user guide"),
    "invoice": ("invoice", "invoices"),
    "report": ("report", "reports"),
}
"""Kinds of document by the words that name them."""


_MAX_TERM_CHARS = 64
_MAX_TERMS = 50
_MIN_CODE_CHARS = 5
_MIN_CODE_DIGITS = 2
_PERIOD_CODE = re.compile(
    r"[A-Z]{1,3}\d?\W?(?:19|20)\d\d|(?:19|20)\d\d\W?[A-Z]{1,3}\d?"
    r"|[A-Z]Y\W?(?:(?:19|20)?\d\d)\W(?:(?:19|20)?\d\d)"  # FY24-25
)
_MEASURE = re.compile(r"\d[\d.,]*-?[^\W\d_]{1,6}")


@dataclass(frozen=True, slots=True)
class Period:
    """Days from first to last, both of them included."""

    first: date
    last: date


@dataclass(frozen=True, slots=True)
class Entities:
    """Filter of the search that a question implies."""

    period: Period | None = None
    document_types: tuple[str, ...] = ()


def find_entities(question: str, today: date | None) -> Entities:
    """Dates and kinds of documents that a question names.

    A period counts only where it is said of the documents ("minutes of March 2025", "the contract
    dated 2024-05-02", "documents from last year"): the date of what a document speaks about is not
    the date that it bears.

    Args:
        question: As it stands.
        today: What "last year" is reckoned from; None leaves such words unread.
    """
    text = " ".join(question.lower().split())
    types = tuple(kind for kind, words in DOCUMENT_TYPES.items() if _names(text, words))
    return Entities(_period_of_documents(text, today), types)


def _names(text: str, words: tuple[str, ...]) -> bool:
    return any(re.search(rf"\b{re.escape(word)}\b", text) for word in words)


_OF_DOCUMENTS = re.compile(
    r"\b(?:documents?|files?|"
    + "|".join(re.escape(word) for words in DOCUMENT_TYPES.values() for word in words)
    + r")\s+(?:(?:that (?:was|were|are|is)\s+)?(?:dated|signed|written|issued|published|from|of|"
    r"in|on|between|since|before|after)\s+)(?P<when>.{4,40})"
)


def _period_of_documents(text: str, today: date | None) -> Period | None:
    for said in _OF_DOCUMENTS.finditer(text):
        found = find_period(said["when"], today)
        if found is not None:
            return found
    return None


def find_period(text: str, today: date | None) -> Period | None:
    """The period that a text begins with; None if it begins with none, or one no calendar knows."""
    text = re.sub(r"^(?:the|on|in)\s+", "", text.lower().strip())
    for pattern, read in _PERIODS:
        said = pattern.match(text)
        if said is not None:
            try:
                return read(said, today)
            except (ValueError, OverflowError):
                return None
    return None


def _day(said: re.Match[str], _: date | None) -> Period:
    day = date.fromisoformat(said["day"])
    return Period(day, day)


def _month(said: re.Match[str], _: date | None) -> Period:
    return _month_of(int(said["year"]), _MONTHS[said["month"]])


def _quarter(said: re.Match[str], _: date | None) -> Period:
    year, quarter = int(said["year"]), int(said["quarter"])
    return Period(date(year, 3 * quarter - 2, 1), _month_of(year, 3 * quarter).last)


def _year(said: re.Match[str], _: date | None) -> Period:
    year = int(said["year"])
    return Period(date(year, 1, 1), date(year, 12, 31))


def _relative(said: re.Match[str], today: date | None) -> Period | None:
    if today is None:
        return None
    back = 1 if said["which"] == "last" else 0
    if said["unit"] == "year":
        return Period(date(today.year - back, 1, 1), date(today.year - back, 12, 31))
    if said["unit"] == "month":
        year, month = divmod(12 * today.year + today.month - 1 - back, 12)
        return _month_of(year, month + 1)
    monday = today - timedelta(days=today.weekday() + 7 * back)
    return Period(monday, monday + timedelta(days=6))


def _month_of(year: int, month: int) -> Period:
    return Period(date(year, month, 1), date(year, month, calendar.monthrange(year, month)[1]))


_PERIODS: tuple[
    tuple[re.Pattern[str], Callable[[re.Match[str], date | None], Period | None]], ...
] = (
    (re.compile(r"(?P<day>\d{4}-\d\d-\d\d)\b"), _day),
    (re.compile(rf"{_MONTH}\.?,? {_YEAR}\b"), _month),
    (re.compile(rf"q(?P<quarter>[1-4])[ /-]?{_YEAR}\b"), _quarter),
    (re.compile(rf"{_YEAR}\b(?!-)"), _year),
    (re.compile(r"(?P<which>last|this) (?P<unit>year|month|week)\b"), _relative),
)


def exact_terms(question: str) -> tuple[str, ...]:
    """Rare exact terms of a question: numbers of invoices, articles, clauses; lower case.

    A term counts when it has a digit and 3 to 64 characters, such as ``INV-2024-0117``; years and
    plain small numbers do not.
    """
    return tuple(dict.fromkeys(term.lower() for term in _exact(question)))[:_MAX_TERMS]


def codes(question: str) -> tuple[str, ...]:
    """Exact terms that name one thing; lower case.

    A capital, two digits and five characters, such as ``HX-2455-A``; not periods and measures, such
    as ``FY24-25`` or ``100GB``, which documents may write in words.
    """
    found = (
        term
        for term in _exact(question)
        if len(term) >= _MIN_CODE_CHARS
        and sum(character.isdigit() for character in term) >= _MIN_CODE_DIGITS
        and any(character.isupper() for character in term)
        and not _PERIOD_CODE.fullmatch(term)
        and not _MEASURE.fullmatch(term)
    )
    return tuple(dict.fromkeys(term.lower() for term in found))[:_MAX_TERMS]


def holds(text: str, term: str) -> bool:
    """Whether a text has an exact term, however its parts are separated.

    ``COVID-19`` stands in "Covid 19" and ``ISO27001`` in "ISO 27001"; ``INV-12`` not in "INV-123".

    Args:
        text: In normal form KC and lower case.
        term: Of :func:`exact_terms`.
    """
    parts = re.findall(r"\d+|[^\W\d_]+", unicodedata.normalize("NFKC", term).lower())
    spelt = r"[\W_]{0,3}".join(map(re.escape, parts))
    return re.search(rf"(?<![^\W_]){spelt}(?![^\W_])", text) is not None


def _exact(question: str) -> Iterator[str]:
    for term in re.findall(r"[^\W_][\w./-]*[^\W_]", question):
        digits = sum(character.isdigit() for character in term)
        plain = term.isdigit() and (len(term) < 5 or term.startswith("0"))
        if (
            digits
            and 2 < len(term) <= _MAX_TERM_CHARS
            and not plain
            and not re.fullmatch(_YEAR, term)
        ):
            yield term
