"""Check of numbers in model-written text against values and texts. Pure."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any

from bos_llm.numbers.reading import Number, Reading, read_numbers

_MAX_KNOWN = 20_000
# Slightly more than half a unit of the last digit: halves may be rounded either way.
_HALF = Decimal("0.5001")
_ROUND, _MIN_ZEROS = 100, 2
_VERSION = re.compile(r"(?<![\w.,])\d{1,3}(?:\.\d{1,3}){2,3}(?![\w.,]*\d)", re.ASCII)
# A number of thousands, or a day with a year of two digits: read as numbers or left alone.
_GROUPED = re.compile(r"\d{1,3}(?:\.\d{3})+$|(?:0?[1-9]|[12]\d|3[01])\.(?:0?[1-9]|1[0-2])\.\d\d$")


class KnownNumbers:
    """The numbers of some sources, values or texts; at most 20,000 of them."""

    def __init__(self, sources: Iterable[Any]) -> None:
        numbers = (abs(number) for source in sources for number in _numbers_in(source))
        given = set(islice(numbers, _MAX_KNOWN))
        self.are_complete = next(numbers, None) is None
        """Whether no number of the sources was left out."""
        self._sorted = sorted(given | {number * 100 for number in given})

    def hold(self, number: Number) -> bool:
        """Whether a number of the sources, or that as a percentage, rounds to ``number``.

        An ambiguous number is held if one of its readings is.
        """
        if number.is_trivial or any(map(self._rounds_to, number.readings)):
            return True
        return bool(number.parts) and all(map(self.hold, number.parts))

    def hold_roughly(self, number: Number) -> bool:
        """Whether they hold ``number``, which a text may have rounded to its zeros.

        ``more than 1,000`` is held by 1042, and ``almost 5,000`` by 4900.
        """
        return self.hold(number) or any(map(self._rounds_to_zeros, number.readings))

    def _rounds_to_zeros(self, reading: Reading) -> bool:
        value = abs(reading.value)
        if value < _ROUND or value != value.to_integral_value():
            return False
        zeros = value.normalize().as_tuple().exponent
        if not isinstance(zeros, int) or zeros < _MIN_ZEROS:
            return False
        unit = Decimal(1).scaleb(zeros)
        return self._any_between(value - unit * _HALF, value + unit)

    def _rounds_to(self, reading: Reading) -> bool:
        off, value = reading.unit * _HALF, abs(reading.value)
        return self._any_between(value - off, value + off)

    def _any_between(self, low: Decimal, high: Decimal) -> bool:
        nearest = bisect_left(self._sorted, low)
        return nearest < len(self._sorted) and self._sorted[nearest] <= high


def ungrounded_numbers(text: str, sources: Sequence[Any]) -> list[str]:
    """Numbers in ``text`` that occur in none of ``sources`` (values or texts)."""
    known = KnownNumbers(sources)
    strange = [number.written for number in read_numbers(text) if not known.hold(number)]
    return strange + _unknown_versions(text, sources)


def _unknown_versions(text: str, sources: Sequence[Any]) -> list[str]:
    """Versions and addresses in ``text``, such as 6.6.6, that no source has in the same digits."""
    named = dict.fromkeys(_VERSION.findall(unicodedata.normalize("NFKC", text)))
    if not named:
        return []
    texts = [unicodedata.normalize("NFKC", source) for source in _texts_in(list(sources))]
    return [
        version
        for version in named
        if not _GROUPED.match(version) and not any(_stands_in(version, text) for text in texts)
    ]


def _stands_in(version: str, text: str) -> bool:
    return re.search(rf"(?<!\d){re.escape(version)}(?!\d)", text) is not None


def _texts_in(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list() | tuple():
            for item in value:
                yield from _texts_in(item)
        case dict():
            for name, item in value.items():
                yield from (*_texts_in(name), *_texts_in(item))


def _numbers_in(value: Any) -> Iterator[Decimal]:
    match value:
        case bool() | None:
            return
        case int() | float() | Decimal():
            number = Decimal(str(value))
            if number.is_finite():
                yield number
        case str():
            for written in read_numbers(value):
                yield from _readings_of(written)
        case list() | tuple():
            yield Decimal(len(value))
            for item in value:
                yield from _numbers_in(item)
        case dict():
            for name, item in value.items():
                yield from _numbers_in(name)
                yield from _numbers_in(item)
        case _:
            yield from _numbers_in(str(value))


def _readings_of(number: Number) -> Iterator[Decimal]:
    yield from (reading.value for reading in number.readings)
    for part in number.parts:
        yield from _readings_of(part)
