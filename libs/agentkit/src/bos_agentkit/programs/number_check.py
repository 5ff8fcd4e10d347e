"""Number check of model-written text, and results of programs as tables."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any

from bos.common.v1 import Table
from bos_chassis.values import make_table

MAX_ROWS = 200
_MAX_KNOWN = 20_000
_NUMBER = re.compile(
    r"(\d[\d,]*(?:\.\d+)?|(?<!\w)\.\d+)"
    r"(?:\s*(%|(?:thousand|lakh|lac|million|mn|crore|cr|billion|bn|per\s?cent)\b))?",
    re.IGNORECASE,
)
_SCALES = {
    "thousand": 10**3,
    "lakh": 10**5,
    "lac": 10**5,
    "million": 10**6,
    "mn": 10**6,
    "crore": 10**7,
    "cr": 10**7,
    "billion": 10**9,
    "bn": 10**9,
}
_SMALL = 31
"""Whole numbers up to this are not checked: they count, name days or rank rows."""


def result_table(result: Any) -> Table | None:
    """Result as a table if it is a list of maps, columns in the order of their keys; else None."""
    if not isinstance(result, list) or not result:
        return None
    if not all(isinstance(row, dict) for row in result):
        return None
    columns = list(dict.fromkeys(name for row in result for name in row))
    if not columns:
        return None
    rows = [[row.get(name) for name in columns] for row in result[:MAX_ROWS]]
    return make_table(columns, rows, truncated=len(result) > MAX_ROWS)


def ungrounded_numbers(text: str, sources: Sequence[Any]) -> list[str]:
    """Numbers in ``text`` that occur in none of ``sources`` (values or texts).

    A number occurs when one of the sources' numbers, or that as a percentage, rounds to it.
    """
    numbers = (abs(number) for source in sources for number in _numbers_in(source))
    given = set(islice(numbers, _MAX_KNOWN))
    known = sorted(given | {number * 100 for number in given})
    return [
        number.written
        for number in _written_numbers(text)
        if not number.is_trivial and not number.rounds_one_of(known)
    ]


@dataclass(frozen=True, slots=True)
class _Number:
    """A number in a text."""

    written: str
    value: Decimal
    unit: Decimal
    """Value of one unit of its last digit."""
    word: str

    @property
    def is_trivial(self) -> bool:
        whole = self.value == self.value.to_integral_value()
        return whole and self.value <= _SMALL and not self.word

    def rounds_one_of(self, known: Sequence[Decimal]) -> bool:
        """Whether one of ``known``, which is sorted, rounds to it."""
        # Slightly more than half a unit of the last digit: halves may be rounded either way.
        off = self.unit * Decimal("0.5001")
        nearest = bisect_left(known, self.value - off)
        return nearest < len(known) and known[nearest] <= self.value + off


def _numbers_in(value: Any) -> Iterator[Decimal]:
    match value:
        case bool() | None:
            return
        case int() | float() | Decimal():
            number = Decimal(str(value))
            if number.is_finite():
                yield number
        case str():
            yield from (number.value for number in _written_numbers(value))
        case list():
            yield Decimal(len(value))
            for item in value:
                yield from _numbers_in(item)
        case dict():
            for name, item in value.items():
                yield from _numbers_in(name)
                yield from _numbers_in(item)
        case _:
            yield from _numbers_in(str(value))


def _written_numbers(text: str) -> Iterator[_Number]:
    for match in _NUMBER.finditer(text):
        digits, word = match[1].replace(",", ""), (match[2] or "").lower()
        scale = _SCALES.get(word, 1)
        exponent = -len(digits.partition(".")[2])
        yield _Number(match[1], Decimal(digits) * scale, Decimal(1).scaleb(exponent) * scale, word)
