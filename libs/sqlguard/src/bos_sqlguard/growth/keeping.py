"""What a query holds of its rows in aggregates, and the query that estimates how many rows.

How many rows reach an aggregate only the database's planner can say, from its statistics. It has
none of computed values (``order_id * 0``, ``length(name)``) and takes a small share for granted, so
a hostile query would choose what is estimated. The query for estimates therefore leaves such
conditions out: what stays compares columns of tables with constants, or with one another for
equality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.scope import Scope, traverse_scope

from bos_sqlguard.growth.sizes import KEEPING, Size
from bos_sqlguard.growth.sources import QUERIES, operands

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
# Differences of letter case and spaces are few: the column itself is as good for an estimate.
_SAME_VALUE = frozenset({"lower", "upper", "trim", "btrim", "ltrim", "rtrim"})
_MOST_LOOKS = 2_000

Place = tuple[int, str]
"""A scope, and the name of a source there."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What aggregates such as ``string_agg`` hold for each row that they are given.

    Attributes:
        query: for estimates only, never to be run: at least as many rows reach each aggregate as in
            the query itself.
        row_bytes: bytes that come with each row.
        copies: how often a row's own values may be held.
        lists: whether a subquery is turned into a list (``ARRAY(SELECT …)``).
    """

    query: str
    row_bytes: float
    copies: float
    lists: bool


def kept_by(
    tree: exp.Expr, sizes: Sequence[tuple[str, Size]], write: Callable[[exp.Expr], str]
) -> Kept | None:
    """What ``tree`` keeps; None if nothing.

    Args:
        tree: of a query that passed the check.
        sizes: function and argument size of each call that keeps values of tables.
        write: writes a tree as SQL, and uses it up.
    """
    if not sizes:
        return None
    return Kept(
        query=write(_estimable(tree.copy())),
        row_bytes=max(size.made for _, size in sizes),
        copies=max(size.natural + size.again for _, size in sizes),
        lists=any(name == "array" for name, _ in sizes),
    )


def _estimable(tree: exp.Expr) -> exp.Expr:
    try:
        known = _Columns(traverse_scope(tree))
    except OptimizeError:  # such as one name for two sources: the server refuses these itself
        known = _Columns(())
    for node in list(tree.walk()):
        if isinstance(node, exp.Where):
            node.set("this", _remaining(node.this, known))
        elif isinstance(node, exp.Having) and not _keeps(node):
            node.set("this", exp.true())
        elif isinstance(node, exp.Join) and node.args.get("on") is not None:
            node.set("on", _remaining(node.args["on"], known))
    return tree


def _remaining(condition: exp.Expr, known: _Columns) -> exp.Expr:
    """The parts of a condition, put together by AND, of which there are statistics."""
    parts = [part for part in _conjuncts(condition) if _is_estimable(part, known)]
    simpler = [part.copy().transform(_same_value, copy=False) for part in parts]
    return exp.and_(*simpler, copy=False) if simpler else exp.true()


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    stack = [condition]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.And):
            stack += [node.right, node.left]
        elif isinstance(node, exp.Paren):
            stack.append(node.this)
        else:
            yield node


def _is_estimable(condition: exp.Expr, known: _Columns) -> bool:
    """Whether statistics tell how many rows a condition leaves."""
    stack = [condition]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.And | exp.Or):
            stack += [node.left, node.right]
        elif isinstance(node, exp.Paren | exp.Not):
            stack.append(node.this)
        elif not _is_comparison(node, known):
            return False
    return True


def _is_comparison(node: exp.Expr, known: _Columns) -> bool:
    if isinstance(node, exp.EQ) and known.are_of_two(_plain(node.left), _plain(node.right)):
        return True
    if isinstance(node, _COMPARISONS):
        return _is_with_constants(node.left, [node.right], known) or _is_with_constants(
            node.right, [node.left], known
        )
    if isinstance(node, exp.Between):
        return _is_with_constants(node.this, [node.args["low"], node.args["high"]], known)
    if isinstance(node, exp.In) and node.args.get("query") is None:
        return _is_with_constants(node.this, node.expressions, known)
    return isinstance(node, exp.Is) and _is_with_constants(node.this, [node.expression], known)


def _is_with_constants(value: exp.Expr, others: Sequence[exp.Expr], known: _Columns) -> bool:
    return known.is_stored(_plain(value)) and not any(
        isinstance(part, (exp.Column, exp.Subquery, *QUERIES))
        for other in others
        for part in other.walk()
    )


def _plain(value: exp.Expr) -> exp.Expr:
    """The value without brackets, and without what changes letter case and spaces alone."""
    while True:
        inner = value.this if isinstance(value, exp.Paren) else _same_value(value)
        if inner is value:
            return value
        value = inner


def _same_value(value: exp.Expr) -> exp.Expr:
    if isinstance(value, exp.Trim) and value.args.get("expression") is None:
        return _same_value(value.this)
    if (
        isinstance(value, exp.Anonymous)
        and value.name.lower() in _SAME_VALUE
        and len(value.expressions) == 1
    ):
        return _same_value(value.expressions[0])
    return value


def _keeps(node: exp.Expr) -> bool:
    return any(
        isinstance(part, exp.Anonymous) and part.name.lower() in KEEPING for part in node.walk()
    )


class _Columns:
    """Which columns of a query are columns of tables, through subqueries and CTEs."""

    def __init__(self, scopes: Sequence[Scope]) -> None:
        self._scopes = {id(scope.expression): scope for scope in scopes}
        self._looks = _MOST_LOOKS

    def is_stored(self, value: exp.Expr) -> bool:
        """Whether ``value`` is a column as a table holds it."""
        return self._place(value) is not None

    def are_of_two(self, left: exp.Expr, right: exp.Expr) -> bool:
        """Whether these are stored columns of two sources: within one, equality says little."""
        one, other = self._place(left), self._place(right)
        return one is not None and other is not None and one != other

    def _place(self, value: exp.Expr) -> Place | None:
        scope = self._scope_of(value) if isinstance(value, exp.Column) else None
        if scope is None or isinstance(value.this, exp.Star):
            return None
        return self._found(scope, value)

    def _scope_of(self, node: exp.Expr) -> Scope | None:
        parent: exp.Expr | None = node
        while parent is not None:
            if id(parent) in self._scopes:
                return self._scopes[id(parent)]
            parent = parent.parent
        return None

    def _found(self, scope: Scope | None, column: exp.Expr) -> Place | None:
        """The source that a column is of, here or further outside, if it is stored."""
        table, name = column.text("table").lower(), column.name.lower()
        while scope is not None and self._looks > 0:
            self._looks -= 1
            sources = {alias.lower(): each for alias, each in scope.selected_sources.items()}
            if not table and len(sources) == 1:
                (table,) = sources
            if table in sources:
                return (id(scope), table) if self._holds(*sources[table], name) else None
            if not table:
                return None
            scope = scope.parent
        return None

    def _holds(self, reference: object, source: object, name: str) -> bool:
        """Whether a column of a source comes from a table as it is."""
        if isinstance(source, exp.Table):
            return not isinstance(source.this, exp.Anonymous)  # a function that gives rows
        if not isinstance(source, Scope) or source.outer_columns or _renames(reference):
            return False
        parts = operands(source.expression)
        names = [each.alias_or_name.lower() for each in parts[0].expressions]
        if name not in names or names.count(name) > 1:
            return False
        return all(self._is_as_it_was(part, names.index(name)) for part in parts)

    def _is_as_it_was(self, query: exp.Expr, place: int) -> bool:
        """Whether a column of what a query puts out is one of a table."""
        shown = query.expressions if isinstance(query, exp.Select) else []
        self._looks -= 1 + len(shown)
        if place >= len(shown) or any(map(_is_star, shown[: place + 1])):
            return False
        inner = shown[place].this if isinstance(shown[place], exp.Alias) else shown[place]
        scope = self._scopes.get(id(query))
        return isinstance(inner, exp.Column) and self._found(scope, inner) is not None


def _renames(reference: object) -> bool:
    alias = reference.args.get("alias") if isinstance(reference, exp.Expr) else None
    return isinstance(alias, exp.TableAlias) and bool(alias.args.get("columns"))


def _is_star(shown: exp.Expr) -> bool:
    return isinstance(shown, exp.Star) or isinstance(shown.this, exp.Star)
