"""Whether a query needs a review by the model, decided on its syntax tree.

A plain aggregate over one table, or over two joined along a known relationship, does not: a
review of it costs a call and finds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from bos_sql.dialects.reading import Unreadable, read_query

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bos_sql.grounding.catalog import Catalog, Join
    from bos_sql.steps.step_state import StepState
    from bos_sqlguard import Dialect

Endpoint = tuple[str, str]
"""Table of the catalogue and one of its columns, in lower case."""

_MANY_TABLES = 3
_NODES: tuple[tuple[type[exp.Expr], str], ...] = (
    (exp.SetOperation, "a set operation"),
    (exp.Window, "a window function"),
    (exp.Exists, "EXISTS"),
    (exp.Lateral, "LATERAL"),
)


def review_reasons(work: StepState, sql: str) -> tuple[tuple[str, ...], str]:
    """Reasons for a review; without any, the reason against it."""
    setting = work.settings.review
    if setting == "never":
        return (), "BOS_SQL_REVIEW=never"
    if work.model.tier == "small":
        return (), "a small model reviews nothing"
    if setting == "always":
        return ("BOS_SQL_REVIEW=always",), ""
    reasons = risks(sql, work.overview.dialect, work.index.catalog)
    if work.assumptions:
        reasons = (*reasons, "assumptions")
    return reasons, "at most two tables along a known relationship, and nothing easily got wrong"


def risks(sql: str, dialect: Dialect, catalog: Catalog) -> tuple[str, ...]:
    """Error-prone features of the query; empty for a plain one."""
    try:
        tree = read_query(sql, dialect)
    except Unreadable:
        return ("a query that cannot be read",)
    return tuple(_Risks(tree, catalog).found())


class _Risks:
    """Finds error-prone features of one query.

    Args:
        tree: The query.
        catalog: Catalogue of its tables.
    """

    def __init__(self, tree: exp.Expr, catalog: Catalog) -> None:
        self._tree = tree
        self._fields = {
            table.name.casefold(): {field.name.casefold() for field in table.fields}
            for table in catalog.tables
        }
        self._known = [_pairs(join) for join in catalog.joins]
        self._ctes = {cte.alias.casefold() for cte in tree.find_all(exp.CTE)}

    def found(self) -> Iterable[str]:
        """Risks without duplicates."""
        tables = {self._table(each) for each in self._tree.find_all(exp.Table)} - {""}
        if len(tables) >= _MANY_TABLES:
            yield f"{len(tables)} tables"
        for kind, name in _NODES:
            if self._tree.find(kind) is not None:
                yield name
        if any(isinstance(each.this, exp.In) for each in self._tree.find_all(exp.Not)):
            yield "NOT IN"
        selects = list(self._tree.find_all(exp.Select))
        joins = [(select, join) for select in selects for join in select.args.get("joins") or ()]
        if any(join.side for _, join in joins):
            yield "an outer join"
        if not all(self._is_known(select, join) for select, join in joins):
            yield "a join that is not one of the known relationships"
        if any(self._is_correlated(select) for select in selects):
            yield "a correlated subquery"

    def _table(self, table: exp.Expr) -> str:
        """Name of a table in the catalogue; empty for CTEs and other non-tables."""
        if not isinstance(table, exp.Table):
            return ""
        name = table.name.casefold()
        qualified = f"{table.db.casefold()}.{name}"
        if table.db:
            return qualified if qualified in self._fields else name
        return "" if name in self._ctes else name

    def _sources(self, tree: exp.Expr) -> Mapping[str, str]:
        """Tables anywhere in ``tree`` by the name or alias that columns use."""
        sources = {
            each.alias_or_name.casefold(): self._table(each) for each in tree.find_all(exp.Table)
        }
        derived = (each.alias.casefold() for each in tree.find_all(exp.Subquery, exp.CTE))
        return {**dict.fromkeys(derived, ""), **sources}

    def _is_known(self, select: exp.Select, join: exp.Join) -> bool:
        joined = self._table(join.this)
        if not joined:
            return False
        pairs = set(self._equalities(select, join))
        return any(
            known <= pairs and any(joined in {table for table, _ in pair} for pair in known)
            for known in self._known
        )

    def _equalities(self, select: exp.Select, join: exp.Join) -> Iterable[frozenset[Endpoint]]:
        """Pairs of endpoints that the join equates."""
        sources = self._sources(select)
        for column in join.args.get("using") or ():
            for table in sources.values():
                name = column.name.casefold()
                yield frozenset({(self._table(join.this), name), (table, name)})
        on = join.args.get("on")
        for part in on.flatten() if isinstance(on, exp.And) else [on]:
            if isinstance(part, exp.EQ):
                yield frozenset(
                    (self._owner(side, sources), side.name.casefold())
                    for side in (part.left, part.right)
                    if isinstance(side, exp.Column)
                )

    def _owner(self, column: exp.Column, sources: Mapping[str, str]) -> str:
        if column.table:
            return sources.get(column.table.casefold(), "")
        name = column.name.casefold()
        owners = {table for table in sources.values() if name in self._fields.get(table, ())}
        return owners.pop() if len(owners) == 1 else ""

    def _is_correlated(self, select: exp.Select) -> bool:
        """Whether a subquery reads columns of the enclosing query."""
        outer = select.find_ancestor(exp.Select)
        if outer is None:
            return False
        inside, around = self._sources(select), self._sources(outer)
        own: set[str] = {each.alias_or_name.casefold() for each in select.selects}
        own |= {name for table in inside.values() for name in self._fields.get(table, ())}
        for column in select.find_all(exp.Column):
            if column.table and column.table.casefold() not in inside:
                return column.table.casefold() in around
            if not column.table and "" not in inside.values() and column.name.casefold() not in own:
                return True
        return False


def _pairs(join: Join) -> frozenset[frozenset[Endpoint]]:
    """Pairs of columns that the join equates."""
    table, other = join.table.casefold(), join.other.casefold()
    columns = zip(join.columns, join.other_columns, strict=True)
    return frozenset(
        frozenset({(table, own.casefold()), (other, others.casefold())}) for own, others in columns
    )
