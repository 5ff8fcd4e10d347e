"""Cross joins: sources of a query that nothing joins, so that every row meets every other.

Only sources with as many rows as a table has count; a few rows, such as one of sums, may stand
beside any table. A join is an equality between columns of two sources, ``BETWEEN``, or a bound from
below and one from above. A column without its table is taken for one of the sources of its ``ON``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from sqlglot import exp

from bos_sqlguard.growth.sizes import Scope
from bos_sqlguard.growth.sources import QUERIES, alias_of, children_of
from bos_sqlguard.growth.work import Work

_BOUNDS = (exp.GT, exp.GTE, exp.LT, exp.LTE)
_ENOUGH = 2
"""What a pair of sources needs to be joined: a bound gives one, an equality all."""
_DEPTH = 20
_UNKNOWN = ""

Pair = frozenset[str]


def is_crossed(node: exp.Expr, scope: Scope, work: Work) -> bool:
    """Whether two large sources of a query meet without a condition, here or further inside."""
    if any(source.crossed for source in scope.values()):
        return True
    large = [name for name, source in scope.items() if source.natural]
    if len(large) < 2:
        return False
    joined = {name: name for name in scope}
    for pair in _joined(node, scope, work):
        one, other = (_root(joined, name) for name in pair)
        joined[one] = other
    return len({_root(joined, name) for name in large}) > 1


def _root(joined: dict[str, str], name: str) -> str:
    while joined[name] != name:
        name = joined[name]
    return name


def _joined(node: exp.Expr, scope: Scope, work: Work) -> Iterator[Pair]:
    """Pairs of sources that something joins."""
    names = list(scope)
    before = {later: earlier for earlier, later in pairwise(names)}
    for join in _joins(node):
        source = join.this
        name = alias_of(source) or getattr(source, "name", "").lower()
        neighbour = before.get(name)
        if neighbour is not None and (join.args.get("using") or join.method == "NATURAL"):
            yield frozenset((name, neighbour))
        on = join.args.get("on")
        if on is not None:
            unnamed = frozenset((name, neighbour)) if neighbour is not None else None
            yield from _enough(_strengths(on, names, unnamed, work))
    where = node.args.get("where")
    if where is not None:
        yield from _enough(_strengths(where.this, names, None, work))
    for source in _sources(node):
        yield from _correlated(source, names, before, work)


def _enough(strengths: Counter[Pair]) -> Iterator[Pair]:
    return (pair for pair, strength in strengths.items() if strength >= _ENOUGH)


def _joins(node: exp.Expr) -> Iterator[exp.Join]:
    """Joins of a query, also those within brackets and behind a table."""
    stack = [node, *([from_.this] if (from_ := node.args.get("from_")) is not None else [])]
    while stack:
        part = stack.pop()
        for join in part.args.get("joins") or ():
            yield join
            stack.append(join.this)


def _sources(node: exp.Expr) -> Iterator[exp.Expr]:
    if (from_ := node.args.get("from_")) is not None:
        yield from_.this
    yield from (join.this for join in _joins(node))
    yield from node.args.get("laterals") or ()


def _correlated(
    source: exp.Expr, names: list[str], before: dict[str, str], work: Work
) -> Iterator[Pair]:
    """A lateral query or a function of rows is joined to what it takes columns from."""
    function = isinstance(source, exp.Unnest) or isinstance(source.this, exp.Anonymous | exp.Unnest)
    if not (function or isinstance(source, exp.Lateral)):
        return
    name = alias_of(source)
    parts = list(source.walk())
    work.spend(len(parts))
    for column in parts:
        if isinstance(column, exp.Column) and name in names:
            table = column.table.lower()
            if table in names and table != name:
                yield frozenset((name, table))
            elif function and not table and name in before:
                yield frozenset((name, before[name]))


def _strengths(
    condition: exp.Expr, names: list[str], unnamed: Pair | None, work: Work, depth: int = 0
) -> Counter[Pair]:
    """How firmly a condition joins each pair of sources; of alternatives each must."""
    found: Counter[Pair] = Counter()
    stack = [condition]
    while stack:
        node = stack.pop()
        work.spend(1)
        if isinstance(node, exp.And):
            stack += [node.left, node.right]
        elif isinstance(node, exp.Paren):
            stack.append(node.this)
        elif isinstance(node, exp.Or) and depth < _DEPTH:
            each = [_strengths(n, names, unnamed, work, depth + 1) for n in node.flatten()]
            common = each[0]
            for other in each[1:]:
                common = common & other
            found += common
        elif isinstance(node, exp.EQ | exp.NullSafeEQ):
            found.update(
                dict.fromkeys(_pairs(node.left, node.right, names, unnamed, work), _ENOUGH)
            )
        elif isinstance(node, _BOUNDS):
            found.update(dict.fromkeys(_pairs(node.left, node.right, names, unnamed, work), 1))
        elif isinstance(node, exp.Between):
            low = _pairs(node.this, node.args["low"], names, unnamed, work)
            high = _pairs(node.this, node.args["high"], names, unnamed, work)
            found.update(dict.fromkeys([*low, *high], 1))
            found.update(dict.fromkeys(low & high, 1))
    return found


def _pairs(
    left: exp.Expr, right: exp.Expr, names: list[str], unnamed: Pair | None, work: Work
) -> set[Pair]:
    """What a comparison of two values joins: sources of columns, each on a side of its own."""
    one, other = _tables(left, names, work), _tables(right, names, work)
    if not one or not other or (one - {_UNKNOWN}) & other:
        return set()
    if _UNKNOWN in one | other:
        return {unnamed} if unnamed is not None and _written(left) != _written(right) else set()
    return {frozenset((a, b)) for a in one for b in other}


def _tables(value: exp.Expr, names: list[str], work: Work) -> set[str]:
    """Sources whose columns are in a value; of a column without table none is known."""
    found: set[str] = set()
    stack = [value]
    while stack:
        node = stack.pop()
        work.spend(1)
        if isinstance(node, exp.Column):
            table = node.table.lower()
            if not table or table in names:
                found.add(table or _UNKNOWN)
        elif not isinstance(node, (*QUERIES, exp.Subquery)):
            stack.extend(children_of(node))
    return found


def _written(value: exp.Expr) -> str:
    return value.name.lower() if isinstance(value, exp.Column) and not value.table else value.sql()
