"""Columns of tables for drawing: kind, unit and order, judged from names and cells. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from bos_llm.numbers.units import PERCENT, is_currency, unit_in_name

Cell = str | float | date | None
"""A cell as charts use it: text, number, day or moment (UTC), or nothing."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_]+")
_PERCENT = frozenset({"percent", "percentage", "pct"})
_FRACTION = frozenset({"share", "ratio"})
_MEAN = frozenset(
    [
        "average",
        "avg",
        "mean",
        "median",
        "price",
        "rate",
        "ratio",
        "share",
        "percent",
        "percentage",
        "pct",
        "score",
        "satisfaction",
        "margin",
        "age",
        "days",
    ]
)
_ID = frozenset({"id", "ids", "uuid", "guid", "key", "code", "no", "zip", "pin", "phone", "email"})
_PERIOD = re.compile(r"(\d{4})-(?:Q([1-4])|(\d{2})(?:-(\d{2}))?)", re.IGNORECASE)
_YEARS = range(1900, 2101)
_ORDINALS = (
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    ["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
    ["q1", "q2", "q3", "q4"],
    ["low", "medium", "high", "critical"],
    ["xs", "small", "medium", "large", "xl"],
)
_RANGE = re.compile(r"\s*[<>≤≥]?\s*=?\s*(\d+)\s*(?:-|–|to|\+|$|days|and)", re.IGNORECASE)
OBJECT_NAMES = frozenset(
    [
        *("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "valueOf"),
        *("toLocaleString", "toString", "__proto__", "__defineGetter__", "__defineSetter__"),
        *("__lookupGetter__", "__lookupSetter__"),
    ]
)
"""Properties of every JavaScript object, which the renderer would read as values of rows."""
_MAX_TEXT = 80
_HUGE, _TINY, _LARGEST = 1e15, 1e-6, 1e100
"""Bounds of numbers that are written out, and of those that are drawn."""


class Kind(StrEnum):
    """Kind of a column's values."""

    NUMBER = "number"
    TIME = "time"
    CATEGORY = "category"


class Unit(StrEnum):
    """How numbers of a column are written."""

    MONEY = "money"
    PERCENT = "percent"
    SCIENTIFIC = "scientific"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Column:
    """One column with its cells."""

    name: str
    kind: Kind
    cells: tuple[Cell, ...]
    unit: Unit = Unit.PLAIN
    currency: str = ""
    """ISO 4217 code of amounts."""
    is_id: bool = False
    """Whether it names single records, such as a key or a telephone number."""
    is_mean: bool = False
    """Whether its numbers are averages or rates, which must not be added up."""
    is_ordinal: bool = False
    """Whether its texts have an order of their own, such as names of months."""

    @property
    def label(self) -> str:
        """Name as a heading: ``net_amount`` becomes ``Net amount``."""
        text = one_line(self.name.replace("_", " "))
        return text[:1].upper() + text[1:] or "Value"

    @property
    def numbers(self) -> list[float]:
        """Its numbers."""
        return [cell for cell in self.cells if isinstance(cell, float)]

    @property
    def distinct(self) -> int:
        """Count of different cells."""
        return len(set(self.cells))


def make_column(name: str, raw: Sequence[Any], unit: str = "") -> Column:
    """Kind and unit of a column of Python values; other values become text.

    Args:
        name: Of the column; an ISO 4217 code in it declares a currency.
        raw: Its values.
        unit: Unit that the table declares.
    """
    words = words_of(name)
    raw = [None if _is_no_number(value) else value for value in raw]
    numbers = [_number(value) for value in raw]
    given = [value for value in raw if value is not None]
    if given and all(
        n is not None for n, value in zip(numbers, raw, strict=True) if value is not None
    ):
        if words & {"year"} and all(n is None or int(n) in _YEARS for n in numbers):
            cells = tuple(None if n is None else date(int(n), 1, 1) for n in numbers)
            return Column(name, Kind.TIME, cells)
        return _number_column(name, words, numbers, unit or unit_in_name(name))
    times = [_time(value) for value in raw]
    if given and all(
        t is not None for t, value in zip(times, raw, strict=True) if value is not None
    ):
        return Column(name, Kind.TIME, tuple(times))
    texts = tuple(None if value is None else _text(value) for value in raw)
    is_id = bool(words & _ID) and len(set(texts)) > len(texts) * 0.9
    return Column(
        name, Kind.CATEGORY, texts, is_id=is_id, is_ordinal=ordinal_rank(texts) is not None
    )


def words_of(name: str) -> set[str]:
    """Words of a name in lower case."""
    return {word.lower() for word in _WORD.findall(name)}


def ordinal_rank(texts: Sequence[Cell]) -> dict[str, int] | None:
    """Rank of each text where all are months, days, quarters, sizes or ranges; else None."""
    given = {text for text in texts if isinstance(text, str)}
    if len(given) < 2:
        return None
    for order in _ORDINALS:
        ranks = {text: _rank(text, order) for text in given}
        if all(rank is not None for rank in ranks.values()):
            return {text: rank or 0 for text, rank in ranks.items()}
    starts = {text: _RANGE.match(text) for text in given}
    if all(starts.values()):
        ordered = sorted(given, key=lambda text: (int(re.findall(r"\d+", text)[0]), "+" in text))
        return {text: rank for rank, text in enumerate(ordered)}
    return None


def _rank(text: str, order: Sequence[str]) -> int | None:
    word = text.strip().lower()
    for rank, start in enumerate(order):
        # Names of months and days in full or in short.
        if word == start or (len(start) == 3 and word.startswith(start) and word in _FULL_NAMES):
            return rank
    return None


_FULL_NAMES = frozenset(
    [
        "january",
        "february",
        "march",
        "april",
        "june",
        "july",
        "august",
        "september",
        "sept",
        "october",
        "november",
        "december",
        "monday",
        "tuesday",
        "tues",
        "wednesday",
        "thursday",
        "thurs",
        "friday",
        "saturday",
        "sunday",
    ]
)


def _number_column(
    name: str, words: set[str], numbers: Sequence[float | None], declared: str
) -> Column:
    finite = [abs(n) for n in numbers if n is not None]
    top = max(finite, default=0.0)
    cells: list[Cell] = list(numbers)
    unit, currency = Unit.PLAIN, ""
    if top >= _HUGE or 0 < top < _TINY:
        unit = Unit.SCIENTIFIC
    elif declared == PERCENT or (words & _PERCENT and top > 1):
        # Percentages are drawn as fractions, which the format multiplies by 100 again.
        cells = [None if n is None else n / 100 for n in numbers]
        unit = Unit.PERCENT
    elif words & _FRACTION and 0 < top <= 1:
        unit = Unit.PERCENT
    elif is_currency(declared):
        unit, currency = Unit.MONEY, declared
    is_id = bool(words & _ID) and all(n == int(n) for n in finite)
    return Column(
        name, Kind.NUMBER, tuple(cells), unit, currency, is_id=is_id, is_mean=bool(words & _MEAN)
    )


def _is_no_number(value: Any) -> bool:
    """Whether a number is none, such as the result of a division by zero: it counts as missing."""
    return isinstance(value, float | Decimal) and not math.isfinite(value)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if not abs(number) < _LARGEST:
        return None
    return number if abs(number) > 1 / _LARGEST else 0.0


def _time(value: Any) -> date | None:
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return value
    if not isinstance(value, str):
        return None
    text = value.strip()
    if period := _PERIOD.fullmatch(text):
        year, quarter, month, day = period.groups()
        try:
            return date(int(year), int(quarter) * 3 - 2 if quarter else int(month), int(day or 1))
        except ValueError:
            return None
    if len(text) < 10 or not text[:4].isdigit():
        return None
    try:
        return _time(datetime.fromisoformat(text))
    except ValueError:
        return None


def _text(value: Any) -> str:
    """A cell as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value == int(value):
        value = int(value)
    text = one_line(str(value))
    # The renderer takes such a name for what it means in JavaScript; a space that is not seen keeps
    # it a text.
    return f"{text}\u00a0" if text in OBJECT_NAMES else text


def one_line(text: str) -> str:
    """A text in at most 80 visible characters on one line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _MAX_TEXT else f"{line[: _MAX_TEXT - 1]}…"
