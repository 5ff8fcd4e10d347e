"""Constructs that mean the same in MySQL, in DuckDB and in every other dialect.

Between these two and the others a translation is given only if it consists of these; between the
others the rules of ``known_wrong`` say what is withheld. Collations, which decide in MySQL whether
upper and lower case are equal, are settings of a database and not considered.
"""

from __future__ import annotations

from sqlglot import exp

from bos_sql.dialects.kinds import Kinds

_PORTABLE = frozenset(
    {
        exp.Select, exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered,
        exp.Limit, exp.Offset, exp.Table, exp.TableAlias, exp.Column, exp.Identifier, exp.Alias,
        exp.Star, exp.Literal, exp.Null, exp.Paren, exp.Subquery, exp.With, exp.CTE, exp.Distinct,
        exp.Union, exp.Intersect, exp.Except, exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT,
        exp.GTE, exp.LT, exp.LTE, exp.Is, exp.In, exp.Between, exp.Exists, exp.Case, exp.If,
        exp.Coalesce, exp.Nullif, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Abs, exp.Count, exp.Sum,
        exp.Min, exp.Max, exp.Upper, exp.Lower, exp.Window, exp.RowNumber, exp.Rank, exp.DenseRank,
    }
)  # fmt: skip
_TRUTHS = (exp.Predicate, exp.Connector, exp.Not)


def unportable(tree: exp.Expr, kinds: Kinds) -> str:
    """Why ``tree`` may mean something else in MySQL or DuckDB; empty if it does not."""
    columns = kinds.columns
    for node in tree.walk():
        if type(node) not in _PORTABLE:
            return f"not known to mean the same there ({node.key})"
        if isinstance(node, exp.Select):
            # MySQL shows conditions as 1 and 0, and knows new names where others do not.
            if any(isinstance(each.unalias(), _TRUTHS) for each in node.expressions):
                return "a condition shown as a value"
            having = node.args.get("having")
            if having is not None and any(
                not each.table and each.name.casefold() not in columns
                for each in having.find_all(exp.Column)
            ):
                return "a condition on a column's new name"
        if isinstance(node, exp.Column) and kinds.of(node) == "bool":
            return "a truth value"
    return ""
