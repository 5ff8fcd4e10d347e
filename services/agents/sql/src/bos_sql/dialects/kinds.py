"""Inference of the kind of value of an SQL expression, from column types and functions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from sqlglot import exp

from bos_sql.grounding.catalog import Table

Kind = Literal["int", "decimal", "float", "text", "date", "moment", "bool", ""]
"""Kind of a value; a ``moment`` is a date with a time; empty: unknown."""

_DECLARED: tuple[tuple[str, Kind], ...] = (
    (r"bool|^bit$", "bool"),
    (r"time", "moment"),
    (r"date", "date"),
    (r"int|serial", "int"),
    (r"real|float|double", "float"),
    (r"numeric|decimal|money", "decimal"),
    (r"char|text|clob|uuid", "text"),
)
_TEXTS = (exp.DPipe, exp.Concat, exp.Upper, exp.Lower, exp.Substring, exp.Trim, exp.TimeToStr)
_SAME_AS_ARGUMENT = (exp.Sum, exp.Max, exp.Min, exp.Round, exp.Abs, exp.Paren, exp.Nullif, exp.Neg)


class Kinds:
    """Infers kinds of expressions over some tables.

    Args:
        tables: Tables that the query reads.
    """

    def __init__(self, tables: Iterable[Table]) -> None:
        found: dict[str, set[Kind]] = {}
        for table in tables:
            for field in table.fields:
                found.setdefault(field.name.casefold(), set()).add(declared_kind(field.type))
        self.columns = frozenset(found)
        """Lower-case names of all columns."""
        self._kinds = {name: kinds.pop() for name, kinds in found.items() if len(kinds) == 1}

    def of(self, node: exp.Expr | None) -> Kind:
        """Kind of ``node``; empty: unknown."""
        match node:
            case exp.Column():
                return self._kinds.get(node.name.casefold(), "")
            case exp.Literal():
                return "text" if node.is_string else "int" if node.is_int else "decimal"
            case exp.Cast():
                return declared_kind(node.to.this.value)
            case exp.Count():
                return "int"
            case exp.Avg():
                return "float" if self.of(node.this) == "float" else "decimal"
            case exp.CurrentDate() | exp.Date():
                return "date"
            case exp.CurrentTimestamp():
                return "moment"
            case exp.Coalesce():
                return self._widest(node.this, *node.expressions)
            case exp.Case():
                branches = [each.args["true"] for each in node.args["ifs"]]
                return self._widest(*branches, node.args.get("default"))
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
                return self._widest(node.left, node.right)
            case _ if isinstance(node, _TEXTS):
                return "text"
            case _ if isinstance(node, _SAME_AS_ARGUMENT):
                return self.of(node.this)
        return ""

    def _widest(self, *nodes: exp.Expr | None) -> Kind:
        kinds = {self.of(node) for node in nodes if node is not None}
        kinds -= {"" for node in nodes if isinstance(node, exp.Null)}
        for kind in ("moment", "date", "float", "decimal"):
            if kind in kinds and "" not in kinds:
                return kind
        return kinds.pop() if len(kinds) == 1 else ""


def declared_kind(text: str) -> Kind:
    """Kind of values of a column by its declared type; empty: unknown."""
    lower = text.casefold()
    return next((kind for pattern, kind in _DECLARED if re.search(pattern, lower)), "")
