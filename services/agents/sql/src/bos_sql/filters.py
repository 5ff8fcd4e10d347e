"""What a query looks for, in words: its plain comparisons of a column with a written value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from bos_sql.dialects.reading import Unreadable, read_query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bos_sqlguard import Dialect

_MAX_FILTERS = 6
_MAX_VALUE_CHARS = 60
_SIGNS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "is not",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
}


def told_filters(sql: str, dialect: Dialect) -> str:
    """The conditions, as ``status = open, due_date < 2026-06-15``; empty if there are none."""
    try:
        tree = read_query(sql, dialect)
    except Unreadable:
        return ""
    told = dict.fromkeys(each for where in tree.find_all(exp.Where) for each in _told(where.this))
    return ", ".join(list(told)[:_MAX_FILTERS])


def _told(condition: exp.Expr) -> Iterator[str]:
    """Of conditions joined by AND; what else there is cannot be said in a few words."""
    for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
        sign = _SIGNS.get(type(part))
        if sign and isinstance(part.this, exp.Column) and (value := _value(part.expression)):
            yield f"{part.this.name} {sign} {value}"
        elif isinstance(part, exp.Between) and isinstance(part.this, exp.Column):
            low, high = _value(part.args["low"]), _value(part.args["high"])
            if low and high:
                yield f"{part.this.name} from {low} to {high}"


def _value(side: exp.Expr) -> str:
    literal = side.this if isinstance(side, exp.Cast) else side
    if not isinstance(literal, exp.Literal):
        return ""
    return " ".join(literal.name.split())[:_MAX_VALUE_CHARS]
