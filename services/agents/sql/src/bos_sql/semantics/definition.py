"""Definitions of metrics, parsed: the normalised formula, and the conditions that belong to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from bos_sql.dialects.reading import Unreadable, read_query
from bos_sql.semantics.expressions import Filter, Normal, Normaliser, TooLong, conjuncts
from bos_sql.semantics.fields import Fields
from bos_sqlguard import DIALECTS

if TYPE_CHECKING:
    from bos_sql.grounding.catalog import Catalog, Metric
    from bos_sqlguard import Dialect


class NotDefined(ValueError):
    """A formula or filter that is no expression which a query can be compared with."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric as queries are compared with it."""

    name: str
    formula: str
    """Normalised."""
    per_row: str
    """What the formula sums up; empty for any other formula."""
    filters: frozenset[Filter]


def define(metric: Metric, catalog: Catalog, dialect: Dialect) -> Definition:
    """Parse the formula and the filters of ``metric``.

    Raises:
        NotDefined: the formula is no aggregate, or a part is no SQL of ``dialect``.
    """
    fields = Fields(catalog)
    normaliser = Normaliser(_base_column, _no_subquery, fields.is_nullable, fields.is_date)
    formula = _normal(normaliser, _parsed(f"SELECT {metric.formula}", dialect).selects[0])
    if not formula.has_aggregate:
        raise NotDefined("the formula aggregates nothing; write it as SUM(table.field) or the like")
    filters = set(formula.filters)
    for condition in metric.filters:
        where = _parsed(f"SELECT 1 WHERE {condition}", dialect).args["where"]
        for part in conjuncts(where.this):
            found = _normal(normaliser, part)
            filters.add(Filter(found.text, found.columns, isinstance(part, exp.Is)))
    summed = formula.text.startswith("SUM(") and len(formula.parts) == 1
    per_row = formula.parts[0].text if summed and not formula.filters else ""
    return Definition(metric.name, formula.text, per_row, frozenset(filters))


def require_defined(metric: Metric, catalog: Catalog) -> None:
    """Check a curated metric before the dialect of the database is known.

    Raises:
        NotDefined: its formula or a filter fits no dialect.
    """
    problem: NotDefined | None = None
    for dialect in DIALECTS:
        try:
            define(metric, catalog, dialect)
        except NotDefined as failure:
            problem = problem or failure
        else:
            return
    if problem is not None:
        raise problem


def _parsed(sql: str, dialect: Dialect) -> exp.Select:
    try:
        tree = read_query(sql, dialect)
    except Unreadable:
        raise NotDefined("this is no SQL expression") from None
    if not isinstance(tree, exp.Select) or len(tree.selects) != 1 or tree.args.get("from_"):
        raise NotDefined("this is no single SQL expression")
    return tree


def _normal(normaliser: Normaliser, node: exp.Expr) -> Normal:
    try:
        return normaliser.normal(node)
    except TooLong:
        raise NotDefined("the expression is too long") from None


def _base_column(column: exp.Column) -> Normal:
    table = f"{column.db}.{column.table}" if column.db else column.table
    key = (table.casefold(), column.name.casefold())
    return Normal(".".join(key), frozenset({key}))


def _no_subquery(_: exp.Expr) -> Normal:
    raise NotDefined("a formula reads fields alone, no query")
