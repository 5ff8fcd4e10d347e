"""Parts of a query that its checks need: sources, joins, filters, groups and measures. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from bos_sql.dialects.reading import Unreadable, read_query
from bos_sql.semantics.expressions import conjuncts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bos_sql.grounding.catalog import Catalog, Table
    from bos_sqlguard import Dialect

_MAX_TEXT_CHARS = 80
# Clauses of a SELECT that are not copied into a query that checks it.
_DROPPED = ("group", "having", "order", "limit", "offset", "distinct", "qualify", "windows")
_NESTED = (exp.SetOperation, exp.CTE, exp.Lateral)


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions of the WHERE clause on the same columns, such as both ends of a period."""

    conditions: tuple[exp.Expr, ...]
    columns: frozenset[str]

    def text(self, dialect: Dialect) -> str:
        """The conditions as they stand in the query, shortened."""
        written = " and ".join(each.sql(dialect=dialect) for each in self.conditions)
        line = " ".join(written.split())
        return line if len(line) <= _MAX_TEXT_CHARS else f"{line[: _MAX_TEXT_CHARS - 1]}…"


@dataclass(frozen=True, slots=True)
class Shape:
    """One plain SELECT over tables: no set operation, no subquery in FROM."""

    select: exp.Select
    dialect: Dialect
    tables: Mapping[str, Table]
    """Tables of the catalogue by the alias or name that columns use, in lower case."""

    @property
    def joins(self) -> list[exp.Join]:
        """Joins, in order."""
        return list(self.select.args.get("joins") or ())

    @property
    def filters(self) -> list[Filter]:
        """Conditions of WHERE that all have to hold, those on the same columns together."""
        where = self.select.args.get("where")
        found: dict[frozenset[str], list[exp.Expr]] = {}
        for part in conjuncts(None if where is None else where.this):
            columns = frozenset(each.sql().casefold() for each in part.find_all(exp.Column))
            found.setdefault(columns, []).append(part)
        return [Filter(tuple(parts), columns) for columns, parts in found.items()]

    def owner(self, column: exp.Column) -> str:
        """Alias of the source that the column belongs to; empty if that is not certain."""
        if column.table:
            alias = column.table.casefold()
            return alias if alias in self.tables else ""
        name = column.name.casefold()
        owners = [
            alias
            for alias, table in self.tables.items()
            if any(field.name.casefold() == name for field in table.fields)
        ]
        return owners[0] if len(owners) == 1 else ""

    def owners(self, tree: exp.Expr) -> set[str]:
        """Aliases of all columns in ``tree``; an empty one if one is not certain."""
        return {self.owner(each) for each in tree.find_all(exp.Column)}

    def probe(
        self,
        expressions: Iterable[exp.Expr],
        filters: Iterable[Filter],
        *,
        without: Iterable[str] = (),
    ) -> exp.Select:
        """The same rows before grouping, with other expressions and filters.

        Args:
            expressions: What is selected instead.
            filters: What remains of the filters.
            without: Aliases whose joins are left out.
        """
        left_out = set(without)
        probe = self.select.copy()
        for name in _DROPPED:
            probe.set(name, None)
        joins = [
            each
            for each in probe.args.get("joins") or ()
            if each.this.alias_or_name.casefold() not in left_out
        ]
        probe.set("joins", joins)
        probe.set("expressions", [each.copy() for each in expressions])
        conditions = [each.copy() for kept in filters for each in kept.conditions]
        probe.set("where", None)
        return probe.where(*conditions, copy=False) if conditions else probe


def parsed(sql: str, dialect: Dialect) -> exp.Expr | None:
    """Syntax tree of a query; None if it cannot be read."""
    try:
        return read_query(sql, dialect)
    except Unreadable:
        return None


def read_shape(tree: exp.Expr | None, dialect: Dialect, catalog: Catalog) -> Shape | None:
    """Shape of a query; None if it is not a plain SELECT over tables of the catalogue."""
    if not isinstance(tree, exp.Select) or tree.find(*_NESTED) is not None:
        return None
    known = {table.name.casefold(): table for table in catalog.tables}
    from_ = tree.args.get("from_") or tree.args.get("from")
    if from_ is None:
        return None
    tables: dict[str, Table] = {}
    for source in (from_.this, *(join.this for join in tree.args.get("joins") or ())):
        if not isinstance(source, exp.Table):
            return None
        table = known.get(f"{source.db}.{source.name}".casefold().lstrip("."))
        table = table or known.get(source.name.casefold())
        alias = source.alias_or_name.casefold()
        if table is None or alias in tables:
            return None
        tables[alias] = table
    return Shape(tree, dialect, tables)


def is_aggregated(tree: exp.Expr | None) -> bool:
    """Whether the rows of a query are totals or groups; also if it cannot be read."""
    if tree is None:
        return True
    found = tree.find_all(exp.AggFunc, exp.Group, exp.Distinct)
    return any(_shapes_rows(each) for each in found)


def _shapes_rows(node: exp.Expr) -> bool:
    """Whether an aggregate is of the rows themselves, not of a condition or a window."""
    parent = node.parent
    while parent is not None:
        if isinstance(parent, exp.Where | exp.Window | exp.Join):
            return False
        parent = parent.parent
    return True
