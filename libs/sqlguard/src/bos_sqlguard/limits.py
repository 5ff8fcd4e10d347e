"""Row and column limits, written into a checked query or checked on it."""

from __future__ import annotations

from sqlglot import exp


class LimitNotLiteral(ValueError):
    """The query's own row limit is not a plain number."""


def write_row_limit(tree: exp.Expr, rows: int) -> bool:
    """Give ``tree`` a limit of at most ``rows``; a smaller one stays. Return whether it changed.

    ``VALUES`` has no limit clause in every dialect; its rows are counted instead.

    Raises:
        LimitNotLiteral: the query's limit is an expression or a percentage.
    """
    if isinstance(tree, exp.Values):
        return False
    limit = tree.args.get("limit")
    if limit is None:
        tree.set("limit", exp.Limit(expression=exp.Literal.number(rows)))
        return True
    options = limit.args.get("limit_options")
    if options is not None and options.args.get("percent"):
        raise LimitNotLiteral("a percentage")
    slot = "count" if isinstance(limit, exp.Fetch) else "expression"
    written = _row_count(limit.args.get(slot))
    if written is not None and written <= rows:
        return False
    limit.set(slot, exp.Literal.number(rows))
    return True


def _row_count(value: exp.Expr | None) -> int | None:
    """Return the number of a limit, or None where it means "all rows"."""
    while isinstance(value, exp.Paren):
        value = value.this
    if value is None:
        return 1  # FETCH FIRST ROW ONLY
    if isinstance(value, exp.Literal) and not value.is_string and value.name.isdecimal():
        return int(value.name)
    negative = isinstance(value, exp.Neg) and isinstance(value.this, exp.Literal)
    if negative or isinstance(value, exp.Null) or value.name.upper() == "ALL":
        return None
    raise LimitNotLiteral(value.sql())


def count_columns(tree: exp.Expr) -> int:
    """Return how many columns the result has at least; a star counts as one."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    if isinstance(tree, exp.Values):
        return max((len(row.expressions) for row in tree.expressions), default=0)
    return len(tree.expressions)


def count_listed_rows(tree: exp.Expr) -> int:
    """Return how many rows a bare ``VALUES`` lists; 0 for every other query."""
    return len(tree.expressions) if isinstance(tree, exp.Values) else 0
