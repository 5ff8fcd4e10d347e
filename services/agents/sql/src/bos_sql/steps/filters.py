"""Filters of a query in words: its comparisons of a column with a literal.

Described completely or not at all: a part of the conditions, or those of a subquery, would
describe another query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from bos_sql.dialects.reading import Unreadable, read_query
from bos_sql.semantics.expressions import conjuncts

if TYPE_CHECKING:
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
# Other clauses of a SELECT that filter rows.
_OTHER_FILTERS = ("having", "qualify", "offset")


def describe_filters(sql: str, dialect: Dialect) -> str:
    """Conditions, as ``status = open, due_date < 2026-06-15``; empty if any cannot be described."""
    try:
        tree = read_query(sql, dialect)
    except Unreadable:
        return ""
    select = tree.unnest()
    if not isinstance(select, exp.Select) or not _is_plain(select):
        return ""
    parts = [_describe_comparison(part) for part in conjuncts(select.args["where"].this)]
    if not all(parts) or len(parts) > _MAX_FILTERS:
        return ""
    return ", ".join(dict.fromkeys(parts))


def _is_plain(select: exp.Select) -> bool:
    """Whether only its own WHERE filters rows."""
    joins = select.args.get("joins") or ()
    return (
        select.args.get("where") is not None
        and sum(1 for _ in select.find_all(exp.Select)) == 1
        and not any(select.args.get(each) for each in _OTHER_FILTERS)
        and not any(join.find(exp.Literal) for join in joins)
    )


def _describe_comparison(part: exp.Expr) -> str:
    """One comparison in words; empty if it is no plain one."""
    if not isinstance(part.this, exp.Column):
        return ""
    if isinstance(part, exp.Between):
        low, high = _value(part.args["low"]), _value(part.args["high"])
        return f"{part.this.name} from {low} to {high}" if low and high else ""
    sign = _SIGNS.get(type(part))
    value = _value(part.expression) if sign else ""
    return f"{part.this.name} {sign} {value}" if value else ""


def _value(side: exp.Expr) -> str:
    literal = side.this if isinstance(side, exp.Cast) else side
    minus = "-" if isinstance(literal, exp.Neg) else ""
    literal = literal.this if minus else literal
    if not isinstance(literal, exp.Literal):
        return ""
    value = " ".join(literal.name.split())
    return minus + (value if len(value) <= _MAX_VALUE_CHARS else f"{value[:_MAX_VALUE_CHARS]}…")
