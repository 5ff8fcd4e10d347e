"""Limits of typed values in requests: nesting depth, number of values, times and decimals. Pure.

Values within the limits can be stored inside any event of a run and parsed again: protobuf
parsers stop at 100 nested messages, and one level of maps takes three.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from typing import Any, NamedTuple

from bos_chassis.values import MAX_DEPTH

MAX_VALUES = 100_000
"""Values of one message, lists and maps included; checking that many takes about 50 ms."""

_DECIMAL = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?|NaN|Infinity)")
_MAX_DECIMAL_CHARS = 262_200
_MIN_SECONDS = -62_135_596_800  # 0001-01-01, the earliest Timestamp
_MAX_SECONDS = 253_402_300_799  # 9999-12-31
_MAX_DURATION_S = 315_576_000_000  # 10,000 years, the longest Duration in JSON


class OutOfBounds(Exception):
    """A value beyond the limits, or an invalid scalar; the message is safe to show to users."""


class Extent(NamedTuple):
    """Size of values: nesting depth and number."""

    values: int
    depth: int
    """Nesting depth of lists and maps; 0 for scalars."""


def extent(values: Iterable[Any], *, max_values: int = MAX_VALUES) -> Extent:
    """Measure values (``bos.common.v1.Value`` or ``google.protobuf.Value``).

    Stops after ``max_values``, so that the time is bounded.

    Raises:
        OutOfBounds: too many values, nested too deeply, or an invalid date, time or number.
    """
    count = deepest = 0
    levels: list[Iterator[Any]] = [iter(values)]
    while levels:
        value = next(levels[-1], None)
        if value is None:
            levels.pop()
            continue
        count += 1
        if count > max_values:
            raise OutOfBounds(f"holds more than {max_values} values")
        kind = value.WhichOneof("kind")
        if kind not in _CHILDREN:
            if kind in _IS_VALID and not _IS_VALID[kind](getattr(value, kind)):
                raise OutOfBounds(f"holds an invalid {kind.removesuffix('_value')}")
            continue
        if len(levels) > MAX_DEPTH:
            raise OutOfBounds(f"nests lists and maps more than {MAX_DEPTH} deep")
        deepest = max(deepest, len(levels))
        levels.append(iter(_CHILDREN[kind](getattr(value, kind))))
    return Extent(count, deepest)


def is_time(stamp: Any) -> bool:
    """Whether a ``google.protobuf.Timestamp`` is valid: a time in the years 1 to 9999."""
    possible = _MIN_SECONDS <= stamp.seconds <= _MAX_SECONDS and 0 <= stamp.nanos < 1_000_000_000
    return bool(possible)


def is_duration(span: Any) -> bool:
    """Whether a ``google.protobuf.Duration`` is valid, so that it can be written as JSON."""
    possible = abs(span.seconds) <= _MAX_DURATION_S and abs(span.nanos) < 1_000_000_000
    return bool(possible and span.seconds * span.nanos >= 0)


def _is_date(day: Any) -> bool:
    try:
        date(day.year, day.month, day.day)
    except ValueError:
        return False
    return True


def _is_decimal(text: str) -> bool:
    return len(text) <= _MAX_DECIMAL_CHARS and _DECIMAL.fullmatch(text) is not None


_CHILDREN: dict[str | None, Callable[[Any], Iterable[Any]]] = {
    "list_value": lambda inner: inner.values,
    "map_value": lambda inner: inner.fields.values(),
    "struct_value": lambda inner: inner.fields.values(),
}
_IS_VALID: dict[str | None, Callable[[Any], bool]] = {
    "date_value": _is_date,
    "timestamp_value": is_time,
    "decimal_value": _is_decimal,
    # Of a google.protobuf.Value: JSON has neither NaN nor infinities.
    "number_value": math.isfinite,
}
