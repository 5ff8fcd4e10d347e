"""Queries of the demo questions in three SQL dialects.

A query is plain SQL except for these marks:

* ``{top N}`` after SELECT and ``{limit N}`` at the end: at most N rows; one or the other is used.
* ``{month EXPRESSION}``: the month of a date as text like 2026-03.
* ``{PERIOD.start}`` and ``{PERIOD.end}``: bounds of a period of `bos_demo.periods`, as ISO dates.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from bos_demo.periods import named_periods

if TYPE_CHECKING:
    from datetime import date

Dialect = Literal["postgres", "sqlite", "tsql"]
DIALECTS: tuple[Dialect, ...] = ("postgres", "sqlite", "tsql")

_MARK = re.compile(r"\{(top|limit|month) ([^{}]+)\}")
_BOUND = re.compile(r"\{(\w+)\.(start|end)\}")
_MONTH: dict[Dialect, str] = {
    "postgres": "to_char({0}, 'YYYY-MM')",
    "sqlite": "strftime('%Y-%m', {0})",
    "tsql": "FORMAT({0}, 'yyyy-MM')",
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
        if name == "top":
            return f"TOP ({argument}) " if dialect == "tsql" else ""
        return "" if dialect == "tsql" else f"LIMIT {argument}"

    def bound(match: re.Match[str]) -> str:
        day: date = getattr(periods[match[1]], match[2])
        return day.isoformat()

    return _BOUND.sub(bound, _MARK.sub(mark, query)).strip()
