"""Number of rows of a series: start, end and step must show it before the query runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime

from sqlglot import exp

from bos_sqlguard.growth.sizes import number_of, text_of

SERIES = frozenset({"generate_series", "range"})
LONGEST_SERIES = 100_000
_UNITS_S = {
    "second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800, "month": 2_419_200,
    "mon": 2_419_200, "quarter": 7_257_600, "year": 31_536_000, "decade": 315_360_000,
}  # fmt: skip
# Where a table or the clock says where a series of times begins or ends.
_USUAL_SPAN_S = 30 * 31_536_000
_USUAL_YEAR = 2020
_INTERVAL = re.compile(r"\s*(\d{1,4}(?:\.\d{1,3})?)\s*([a-z]+?)s?\s*", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([ T].{0,32})?", re.ASCII)
_WORD = re.compile(r"[a-z/_]{1,30}", re.IGNORECASE)
_OPERATORS = (exp.Mul, exp.Div, exp.Pow)


def rows_of_series(arguments: Sequence[exp.Expr]) -> float | None:
    """How many rows ``generate_series`` makes at most; None if unknown."""
    if not 2 <= len(arguments) <= 4:
        return None
    start, end = arguments[0], arguments[1]
    step = arguments[2] if len(arguments) > 2 else None
    seconds = _interval_s(step)
    if seconds is None:
        return _rows_of_numbers(number_of(start), number_of(end), step)
    if seconds <= 0:
        return None
    span = _span_s(start, end)
    return None if span is None else span / seconds + 1


def _rows_of_numbers(start: float | None, end: float | None, step: exp.Expr | None) -> float | None:
    width = 1.0 if step is None else number_of(step)
    if start is None or end is None or not width:
        return None
    return max(0.0, (end - start) / width) + 1


def _interval_s(node: exp.Expr | None) -> float | None:
    """The shortest time that a written interval can be."""
    while isinstance(node, exp.Paren | exp.Cast):
        node = node.this
    if isinstance(node, exp.Neg):
        return _interval_s(node.this)
    if isinstance(node, exp.Interval):
        amount = node.this.name if isinstance(node.this, exp.Literal) else None
        unit = node.args.get("unit")
        text = f"{amount} {unit.name}" if amount is not None and unit is not None else amount
    else:
        text = text_of(node)
    found = _INTERVAL.fullmatch((text or "").lstrip("-"))
    if found is None or (unit_s := _UNITS_S.get(found[2].lower())) is None:
        return None
    return float(found[1]) * unit_s


def _span_s(start: exp.Expr, end: exp.Expr) -> float | None:
    """The longest time from start to end, by the dates written there or by the usual span."""
    dates = [_date_of(start), _date_of(end)]
    if dates[0] is not None and dates[1] is not None:
        return abs((dates[1] - dates[0]).total_seconds())
    span = float(_USUAL_SPAN_S)
    for node in (*start.walk(), *end.walk()):
        if isinstance(node, _OPERATORS):
            return None
        if isinstance(node, exp.Interval):
            length = _interval_s(node)
            if length is None:
                return None
            span += length
        elif isinstance(node, exp.Literal) and not isinstance(node.parent, exp.Interval):
            written = node.name
            if not node.is_string:
                # A count of days, or an argument of a function.
                if (number := number_of(node)) is None or abs(number) > 10_000:
                    return None
                span += abs(number) * 86_400
            elif _DATE.fullmatch(written):
                span += abs(int(written[:4]) - _USUAL_YEAR) * _UNITS_S["year"]
            elif not _WORD.fullmatch(written) or written.lower() == "infinity":
                return None
    return span


def _date_of(node: exp.Expr | None) -> datetime | None:
    """The date that is written here, with days added to it or taken from it."""
    if isinstance(node, exp.Add | exp.Sub):
        days = number_of(node.expression)
        # Whole days only make it a little longer or shorter.
        return _date_of(node.this) if days is not None and abs(days) <= 366 else None
    while isinstance(node, exp.Paren | exp.Cast):
        node = node.this
    text = text_of(node)
    if text is None or not _DATE.fullmatch(text):
        return None
    try:
        day = date.fromisoformat(text[:10])
    except ValueError:
        return None
    return datetime(day.year, day.month, day.day)  # noqa: DTZ001 - only differences matter
