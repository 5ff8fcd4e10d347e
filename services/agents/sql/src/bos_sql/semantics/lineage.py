"""What the columns of a query's result stand for: aggregates of base columns, with conditions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, build_scope

from bos_sql.grounding.catalog import Catalog
from bos_sql.semantics.expressions import Column, Filter, Normal, Normaliser, Rows, over
from bos_sql.semantics.fields import Fields

_MAX_DEPTH = 30


class Untraceable(ValueError):
    """The query is nested too deeply, or is no SELECT."""


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the result, or an expression that orders or restricts its rows."""

    alias: str
    """Name in the result, if it has one."""
    normal: Normal
    rows: Rows
    """The rows of its SELECT."""
    is_per_row: bool
    """Whether its SELECT neither groups nor aggregates."""
    is_shown: bool
    """Whether it is a column of the result."""


class Lineage:
    """Traces the columns of one query to the tables of a catalogue.

    Args:
        tree: The query.
        catalog: Catalogue of its tables.

    Attributes:
        fields: The fields of these tables.
    """

    def __init__(self, tree: exp.Expr, catalog: Catalog) -> None:
        self.fields = Fields(catalog)
        root = build_scope(tree)
        if root is None:
            raise Untraceable
        self._root = root
        self._known: dict[int, Rows] = {}
        self._depth = 0

    def outputs(self) -> list[Output]:
        """Columns of the result, and what orders and restricts it, of each branch of a UNION.

        Raises:
            Untraceable: the query is nested too deeply.
            TooLong: an expression is too long.
        """
        return [each for scope in _branches(self._root) for each in self._outputs(scope)]

    def _outputs(self, scope: Scope) -> Iterable[Output]:
        select, rows = _select(scope), self._rows(scope)
        named = [(each.alias_or_name, each, True) for each in select.selects]
        others = [each.this for each in (select.args.get("having"),) if each is not None]
        order = select.args.get("order")
        others += [] if order is None else [each.this for each in order.expressions]
        normaliser = self._normaliser(scope)
        found = [
            (alias, normaliser.normal(each), is_shown)
            for alias, each, is_shown in [*named, *(("", each, False) for each in others)]
            if not each.is_star
        ]
        per_row = select.args.get("group") is None and not any(
            each.has_aggregate for _, each, _ in found
        )
        for alias, normal, is_shown in found:
            yield Output(alias, normal, rows, per_row, is_shown)

    def _normaliser(self, scope: Scope, rows: Rows | None = None) -> Normaliser:
        own = self._rows(scope) if rows is None else rows
        return Normaliser(
            lambda column: over(self._column(scope, column), own),
            lambda query: self._scalar(scope, query),
            self.fields.is_nullable,
            self.fields.is_date,
            own,
        )

    def _rows(self, scope: Scope) -> Rows:
        """Conditions and groups of a SELECT, those of the queries it reads from included."""
        if (known := self._known.get(id(scope))) is not None:
            return known
        self._enter()
        select = _select(scope)
        below = frozenset[Filter]().union(*self._below(scope))
        plain = self._normaliser(scope, Rows(below))
        where = select.args.get("where")
        filters = below | plain.filters(None if where is None else where.this)
        for join in select.args.get("joins") or ():
            if not join.side:
                filters |= plain.filters(join.args.get("on"))
        grouped = select.args.get("group")
        groups = frozenset[Column]().union(
            *(
                plain.normal(self._named(select, each)).columns
                for each in (grouped.expressions if grouped is not None else ())
            )
        )
        self._depth -= 1
        return self._known.setdefault(id(scope), Rows(filters, groups))

    def _below(self, scope: Scope) -> Iterable[frozenset[Filter]]:
        """Conditions of the queries it reads from, as far as they narrow the rows of others."""
        select = _select(scope)
        sources = {alias: source for alias, (_, source) in scope.selected_sources.items()}
        queries = {
            alias: _branches(source)
            for alias, source in sources.items()
            if isinstance(source, Scope)
        }
        summed_up = {alias for alias, found in queries.items() if all(map(_is_summed_up, found))}
        # What is summed up before it is joined narrows what other sources hold only where they
        # are not summed up, and where rows without a match are dropped.
        apart = summed_up if summed_up == set(sources) and not _is_summed_up(scope) else set()
        apart |= {
            join.alias_or_name
            for join in select.args.get("joins") or ()
            if join.side == "LEFT" and join.alias_or_name in summed_up
        }
        # Without groups there is one row, which matches all.
        apart |= {alias for alias in summed_up if not any(map(_is_grouped, queries[alias]))}
        for alias, branches in queries.items():
            if len(sources) == 1 or alias not in apart:
                yield from (self._rows(branch).filters for branch in branches)
            if len(sources) > 1 and alias not in apart:
                yield from map(self._having, branches)

    def _having(self, scope: Scope) -> frozenset[Filter]:
        having = _select(scope).args.get("having")
        if having is None:
            return frozenset()
        found = self._normaliser(scope).normal(having.this)
        return frozenset({Filter(found.text, found.columns)})

    def _named(self, select: exp.Select, node: exp.Expr) -> exp.Expr:
        """A group as the expression that it means: by its position, or by its alias."""
        if isinstance(node, exp.Literal) and node.is_int:
            place = int(node.this) - 1
            return select.selects[place].unalias() if place < len(select.selects) else node
        if isinstance(node, exp.Column) and not node.table:
            for each in select.selects:
                if isinstance(each, exp.Alias) and each.alias.casefold() == node.name.casefold():
                    return each.unalias()
        return node

    def _scalar(self, scope: Scope, query: exp.Expr) -> Normal:
        inner = query.unnest()
        for each in scope.subquery_scopes:
            if each.expression is inner:
                for branch in _branches(each):
                    if selects := _select(branch).selects:
                        return self._normaliser(branch).normal(selects[0])
        return Normal(query.sql().casefold())

    def _column(self, scope: Scope, column: exp.Column) -> Normal:
        """What a column stands for: a column of a table, or an expression of a subquery."""
        name = column.name.casefold()
        place: Scope | None = scope
        self._enter()
        try:
            while place is not None:
                for alias, (_, source) in place.selected_sources.items():
                    if column.table and column.table.casefold() != alias.casefold():
                        continue
                    if (found := self._of_source(source, name)) is not None:
                        return found
                if not column.table and place is scope:
                    for each in _select(scope).selects:
                        if isinstance(each, exp.Alias) and each.alias.casefold() == name:
                            return self._normaliser(scope).normal(each.this)
                place = place.parent
        finally:
            self._depth -= 1
        return Normal(column.sql().casefold())

    def _of_source(self, source: exp.Expr | Scope, name: str) -> Normal | None:
        if isinstance(source, Scope):
            return self._of_query(source, name)
        if not isinstance(source, exp.Table):
            return None
        table = self._table(source)
        if self.fields.get((table, name)) is None:
            return None
        return Normal(f"{table}.{name}", frozenset({(table, name)}))

    def _of_query(self, source: Scope, name: str) -> Normal | None:
        query = source.expression
        if not isinstance(query, exp.Query):
            return None
        names = [each.casefold() for each in query.named_selects]
        for branch in _branches(source):
            select = _select(branch)
            if name in names and names.index(name) < len(select.selects):
                return self._normaliser(branch).normal(select.selects[names.index(name)])
            if any(each.is_star for each in select.selects):
                for _, inner in branch.selected_sources.values():
                    if (found := self._of_source(inner, name)) is not None:
                        return over(found, self._rows(branch))
        return None

    def _table(self, table: exp.Table) -> str:
        qualified = f"{table.db}.{table.name}".casefold()
        return qualified if table.db and self.fields.has_table(qualified) else table.name.casefold()

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise Untraceable


def _select(scope: Scope) -> exp.Select:
    select = scope.expression
    if not isinstance(select, exp.Select):
        raise Untraceable
    return select


def _is_summed_up(scope: Scope) -> bool:
    return _is_grouped(scope) or any(
        each.find(exp.AggFunc) is not None for each in _select(scope).selects
    )


def _is_grouped(scope: Scope) -> bool:
    return any(_select(scope).args.get(clause) is not None for clause in ("group", "having"))


def _branches(scope: Scope) -> list[Scope]:
    """The SELECTs of a query: itself, or the branches of a set operation."""
    if not scope.set_operation_scopes:
        return [scope] if isinstance(scope.expression, exp.Select) else []
    return [each for branch in scope.set_operation_scopes for each in _branches(branch)]
