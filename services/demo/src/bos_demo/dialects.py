"""Queries of the demo questions in three SQL dialects.

A query is plain SQL except for these marks:

* ``{top N}`` after SELECT and ``{limit N}`` at the end: at most N rows; one or the other is used.
* ``{month EXPRESSION}``: the month of a date as text like 2026-03.
* ``{days LATER, EARLIER}``: whole days between two dates.
* ``{hours LATER, EARLIER}``: hours between two timestamps, with fractions.
* ``{PERIOD.start}`` and ``{PERIOD.end}``: bounds of a period of `bos_demo.periods`, as ISO dates.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Literal

from bos_demo.periods import named_periods

Dialect = Literal["postgres", "sqlite", "tsql"]
DIALECTS: tuple[Dialect, ...] = ("postgres", "sqlite", "tsql")

_MARK = re.compile(r"\{(top|limit|month|days|hours) ([^{}]+)\}")
_BOUND = re.compile(r"\{(\w+)\.(start|end)\}")
_MONTH: dict[Dialect, str] = {
    "postgres": "to_char({0}, 'YYYY-MM')",
    "sqlite": "strftime('%Y-%m', {0})",
    "tsql": "FORMAT({0}, 'yyyy-MM')",
}
_BETWEEN: dict[str, dict[Dialect, str]] = {
    "days": {
        "postgres": "({0} - {1})",
        "sqlite": "CAST(julianday({0}) - julianday({1}) AS integer)",
        "tsql": "DATEDIFF(day, {1}, {0})",
    },
    "hours": {
        "postgres": "(EXTRACT(EPOCH FROM {0} - {1}) / 3600)",
        "sqlite": "((julianday({0}) - julianday({1})) * 24)",
        "tsql": "(DATEDIFF(minute, {1}, {0}) / 60.0)",
    },
}


def write_sql(query: str, dialect: Dialect, today: date) -> str:
    """Return `query` in `dialect`, with the periods as seen from `today`.

    Raises:
        KeyError: the query names an unknown period.
    """
    periods = named_periods(today)

    def mark(match: re.Match[str]) -> str:
        name, argument = match.groups()
        if name == "month":
            return _MONTH[dialect].format(argument)
        if name in _BETWEEN:
            return _BETWEEN[name][dialect].format(*argument.split(", "))
        if name == "top":
            return f"TOP ({argument}) " if dialect == "tsql" else ""
        return "" if dialect == "tsql" else f"LIMIT {argument}"

    def bound(match: re.Match[str]) -> str:
        day: date = getattr(periods[match[1]], match[2])
        return day.isoformat()

    return _BOUND.sub(bound, _MARK.sub(mark, query)).strip()
