"""Number of rows of a recursive query that reads no table: a count must be in sight."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlglot import exp

from bos_sqlguard.growth.series import LONGEST_SERIES
from bos_sqlguard.growth.sizes import number_of, text_of

_USUAL_ROWS = 10_000.0
_ENDLESS = 1e12
_FORWARD = re.compile(r"\s*\+?[1-9]\d* (day|month|year)s?\s*", re.IGNORECASE)
_UNITS = frozenset({"DAY", "DAYS", "WEEK", "WEEKS", "MONTH", "MONTHS", "QUARTER", "YEAR", "YEARS"})
_YEAR = re.compile(r"[12]\d{3}-.*", re.DOTALL)


def rows_of_recursion(query: exp.SetOperation, step: exp.Expr) -> float:
    """How many rows there are at most; endless where nothing written in it says so.

    A step has to go forward by a whole number or by days, and to end at a number or date written in
    it; or the query has a limit.
    """
    limit = query.args.get("limit")
    if limit is not None and (rows := number_of(limit.args.get("expression"))) is not None:
        return max(0.0, rows)
    if not isinstance(step, exp.Select):
        return _ENDLESS
    ends = [end for end in _ends(step) if end is not None]
    if not ends or not any(_goes_forward(each) for each in step.expressions):
        return _ENDLESS
    return min(ends)


def _ends(step: exp.Select) -> Iterator[float | None]:
    where = step.args.get("where")
    stack = [where.this] if where is not None else []
    while stack:
        node = stack.pop()
        if isinstance(node, exp.And | exp.Paren):
            stack.extend(part for part in (node.this, node.args.get("expression")) if part)
        elif isinstance(node, exp.LT | exp.LTE):
            yield _end(node.expression)


def _end(node: exp.Expr) -> float | None:
    number = number_of(node)
    if number is not None:
        return number + 1 if number <= LONGEST_SERIES else None
    while isinstance(node, exp.Cast | exp.Paren):
        node = node.this
    text = text_of(node)
    return _USUAL_ROWS if text is not None and _YEAR.fullmatch(text) else None


def _goes_forward(node: exp.Expr) -> bool:
    """Whether it adds at least one to a column."""
    while isinstance(node, exp.Alias | exp.Cast | exp.Paren):
        node = node.this
    if isinstance(node, exp.Add) and isinstance(node.this, exp.Column):
        return _is_forward(node.expression)
    if isinstance(node, exp.Anonymous) and node.name.lower() in {"date", "datetime"}:
        texts = [text_of(each) for each in node.expressions[1:]]
        return any(text is not None and _FORWARD.fullmatch(text) for text in texts)
    if isinstance(node, exp.Anonymous) and node.name.lower() == "dateadd":
        unit, *rest = node.expressions
        return unit.name.upper() in _UNITS and any((number_of(e) or 0) >= 1 for e in rest[:1])
    return False


def _is_forward(node: exp.Expr) -> bool:
    if isinstance(node, exp.Interval):
        unit = node.args.get("unit")
        amount = node.this.name if isinstance(node.this, exp.Literal) else ""
        return (
            amount.isdecimal()
            and int(amount) >= 1
            and unit is not None
            and (unit.name.upper() in _UNITS)
        )
    number = number_of(node)
    return number is not None and number >= 1
