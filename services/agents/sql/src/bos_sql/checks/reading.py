"""A query and its parts: CTEs, subqueries in FROM, branches of set operations. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from bos_sql.checks.shape import Shape
from bos_sql.grounding.catalog import Field, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bos_sql.grounding.catalog import Catalog
    from bos_sqlguard import Dialect

_MAX_PARTS = 12
_MAX_DEPTH = 8
_WHOLE_KEY = "primary key"


@dataclass(frozen=True, slots=True)
class _Source:
    """What a FROM clause reads: a table of the catalogue, or the rows of another part."""

    table: Table
    is_single_row: bool = False


@dataclass(frozen=True, slots=True)
class _Scope:
    """CTEs that can be seen from a place, in the order of their definition."""

    dialect: Dialect
    known: Mapping[str, Table]
    ctes: Mapping[str, exp.CTE] = field(default_factory=dict)
    sources: Mapping[str, _Source] = field(default_factory=dict)

    def source(self, node: exp.Expr) -> _Source | None:
        """What a node of FROM or JOIN reads; None if that is not certain."""
        if isinstance(node, exp.Subquery):
            return _rows_of(node.this, node, node.alias) if node.alias else None
        if not isinstance(node, exp.Table):
            return None
        name = node.name.casefold()
        if not node.db and name in self.ctes:
            return self.sources.get(name)
        table = self.known.get(f"{node.db}.{node.name}".casefold().lstrip("."))
        table = table or self.known.get(name)
        return None if table is None else _Source(table)

    def needed(self, tree: exp.Expr) -> tuple[exp.CTE, ...]:
        """CTEs that ``tree`` reads, and what those read, in order."""
        found: set[str] = set()
        waiting = [tree]
        while waiting:
            for each in waiting.pop().find_all(exp.Table):
                name = each.name.casefold()
                if name in self.ctes and name not in found:
                    found.add(name)
                    waiting.append(self.ctes[name])
        return tuple(cte for name, cte in self.ctes.items() if name in found)

    def with_cte(self, cte: exp.CTE) -> _Scope:
        """This scope behind the definition of a CTE."""
        name = cte.alias.casefold()
        source = _rows_of(cte.this, cte, cte.alias)
        sources = {each: self.sources[each] for each in self.sources if each != name}
        if source is not None:
            sources[name] = source
        return replace(self, ctes={**self.ctes, name: cte}, sources=sources)


def read_shapes(tree: exp.Expr | None, dialect: Dialect, catalog: Catalog) -> list[Shape]:
    """Shapes of the plain SELECTs whose rows make up a result, from the outside inwards.

    The query itself comes first if it is one (:attr:`Shape.part` is empty), then branches of its
    set operations, its subqueries in FROM, and its CTEs, those that were defined last first. What
    reads lateral subqueries, recursive CTEs or unknown tables is left out, its parts are not.

    Args:
        tree: Syntax tree of the query; None if it cannot be read.
        dialect: Of the query.
        catalog: Its tables.
    """
    if not isinstance(tree, exp.Query) or tree.find(exp.Lateral) is not None:
        return []
    scope = _Scope(dialect, {table.name.casefold(): table for table in catalog.tables})
    inner: list[Shape] = []
    with_ = tree.args.get("with_") or tree.args.get("with")
    if with_ is not None:
        if with_.args.get("recursive"):
            return []
        for cte in with_.expressions:
            inner[:0] = _parts(cte.this, cte.alias, scope)
            scope = scope.with_cte(cte)
    return [*_parts(tree, "", scope), *inner][:_MAX_PARTS]


def _parts(query: exp.Expr, name: str, scope: _Scope, depth: int = 0) -> Iterator[Shape]:
    """Shapes of one query and of what stands in its FROM clause."""
    if depth > _MAX_DEPTH:
        return
    branches = list(_branches(query))
    for number, select in enumerate(branches, 1):
        part = name
        if len(branches) > 1:
            part = f"{name}, part {number}" if name else f"part {number}"
        shape = _read(select, part, scope)
        if shape is not None:
            yield shape
        for node in _read_from(select):
            if isinstance(node, exp.Subquery) and node.alias:
                yield from _parts(node.this, node.alias, scope, depth + 1)


def _branches(query: exp.Expr) -> Iterator[exp.Select]:
    """SELECTs of a query, more than one of a set operation, in order."""
    waiting = [query]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Subquery):
            waiting.append(node.this)
        elif isinstance(node, exp.SetOperation):
            waiting += [node.expression, node.this]
        elif isinstance(node, exp.Select):
            yield node


def _read_from(select: exp.Select) -> list[exp.Expr]:
    """Nodes of FROM and of all joins, in order; empty without FROM."""
    from_ = select.args.get("from_") or select.args.get("from")
    if from_ is None:
        return []
    return [from_.this, *(join.this for join in select.args.get("joins") or ())]


def _read(select: exp.Select, part: str, scope: _Scope) -> Shape | None:
    """Shape of one SELECT; None if not all that it reads is known, each by a name of its own."""
    if part and (select.args.get("with_") or select.args.get("with")):
        return None
    found: dict[str, _Source] = {}
    for node in _read_from(select):
        source, alias = scope.source(node), node.alias_or_name.casefold()
        if source is None or alias in found:
            return None
        found[alias] = source
    if not found:
        return None
    return Shape(
        select,
        scope.dialect,
        {alias: source.table for alias, source in found.items()},
        single_rows=frozenset(alias for alias, source in found.items() if source.is_single_row),
        part=part,
        ctes=scope.needed(select) if part else (),
    )


def _rows_of(query: exp.Expr, node: exp.CTE | exp.Subquery, name: str) -> _Source | None:
    """The rows of a part as a table with a key, if they are known to have one."""
    selects = list(_branches(query))
    if not selects:
        return None
    columns = node.args["alias"].args.get("columns") or ()
    names = [each.name for each in columns] or selects[0].named_selects
    if not names or "*" in names or len(names) != len(selects[0].expressions):
        return None
    if any(each.is_star for each in selects[0].expressions) or not all(names):
        return None
    key = _key(selects[0], names) if len(selects) == 1 else ()
    fields = tuple(Field(each, "", _WHOLE_KEY if each in key else "") for each in names)
    is_single = len(selects) == 1 and _has_one_row(selects[0])
    return _Source(Table(name, "rows", fields), is_single)


def _key(select: exp.Select, names: Sequence[str]) -> tuple[str, ...]:
    """Columns whose values together are different in each row: groups, or all of DISTINCT."""
    distinct = select.args.get("distinct")
    if distinct is not None:
        return () if distinct.args.get("on") else tuple(names)
    group = select.args.get("group")
    if group is None or group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is not None:
        return ()
    by_text = {
        each.unalias().sql().casefold(): name
        for each, name in zip(select.expressions, names, strict=True)
    }
    by_name = {name.casefold(): name for name in names}
    found = []
    for each in group.expressions:
        if isinstance(each, exp.Literal) and each.is_int and 0 < int(each.name) <= len(names):
            found.append(names[int(each.name) - 1])
        elif (text := each.sql().casefold()) in by_text:
            found.append(by_text[text])
        elif isinstance(each, exp.Column) and not each.table and each.name.casefold() in by_name:
            found.append(by_name[each.name.casefold()])
        else:
            return ()
    return tuple(found)


def _has_one_row(select: exp.Select) -> bool:
    """Whether there is one row at most: aggregates without groups, or a limit of one."""
    limit = select.args.get("limit")
    if limit is not None:
        count = limit.args.get("expression") or limit.args.get("count")
        if isinstance(count, exp.Literal) and count.name == "1":
            return True
    if select.args.get("group") is not None:
        return False
    return all(
        each.find(exp.AggFunc) is not None and each.find(exp.Window, exp.Subquery) is None
        for each in select.expressions
    )
