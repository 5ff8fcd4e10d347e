"""Expressions of a query in base columns, normalised so that equal measures have equal texts.

``SUM(i.net_amount)`` over ``invoices i``, the same over a CTE that selects ``net_amount AS n``, and
``SUM(net_amount) FILTER (WHERE …)`` have one text, ``SUM(invoices.net_amount)``; conditions stand
beside it as filters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal

from sqlglot import exp

Column = tuple[str, str]
"""Table of the catalogue and one of its columns, in lower case."""

_COMMUTATIVE = (exp.Add, exp.Mul, exp.EQ, exp.NEQ, exp.And, exp.Or)
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LT, exp.GTE: exp.LTE}
_SPLIT = ("ADD", "SUB")
_ARITHMETIC = (*_SPLIT, "MUL")
_MAX_CHARS = 20_000


class TooLong(ValueError):
    """The expression, with its columns replaced by what they stand for, exceeds the limit."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition that rows have to meet."""

    text: str
    columns: frozenset[Column] = frozenset()
    is_null_test: bool = False


@dataclass(frozen=True, slots=True)
class Normal:
    """A normalised expression."""

    text: str
    columns: frozenset[Column] = frozenset()
    filters: frozenset[Filter] = frozenset()
    """Conditions on the rows that its aggregates count."""
    groups: frozenset[Column] = frozenset()
    """Columns by which its aggregates are grouped."""
    has_aggregate: bool = False
    parts: tuple[Normal, ...] = field(default=(), repr=False)
    """Expressions that it is made of, itself not included."""

    def all_parts(self) -> Iterable[Normal]:
        """The expression, and every part of it."""
        yield self
        for part in self.parts:
            yield from part.all_parts()


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a SELECT: their conditions and groups."""

    filters: frozenset[Filter] = frozenset()
    groups: frozenset[Column] = frozenset()


class Normaliser:
    """Normalises the expressions of one SELECT.

    Args:
        column: Resolves a column of this SELECT.
        subquery: Resolves a scalar subquery.
        is_nullable: Whether a base column may be NULL.
        is_date: Whether a base column holds dates or moments.
        rows: The rows over which its aggregates run.
    """

    def __init__(
        self,
        column: Callable[[exp.Column], Normal],
        subquery: Callable[[exp.Expr], Normal],
        is_nullable: Callable[[Column], bool],
        is_date: Callable[[Column], bool],
        rows: Rows = Rows(),
    ) -> None:
        self._column = column
        self._subquery = subquery
        self._is_nullable = is_nullable
        self._is_date = is_date
        self._rows = rows

    def normal(self, node: exp.Expr) -> Normal:
        """Normalise ``node``.

        Raises:
            TooLong: its text exceeds the limit.
        """
        found = self._of(node)
        if len(found.text) > _MAX_CHARS:
            raise TooLong
        return found

    def filters(self, condition: exp.Expr | None) -> frozenset[Filter]:
        """The conjuncts of ``condition``, without equalities that only join two tables."""
        return frozenset(self._filters(condition))

    def _filters(self, condition: exp.Expr | None) -> Iterable[Filter]:
        for part in conjuncts(condition):
            found = self.normal(part)
            if found.has_aggregate or self._is_join(part, found):
                continue
            tested = part.this.unnest() if isinstance(part, exp.Not) else part
            yield Filter(found.text, found.columns, isinstance(tested, exp.Is))

    def _is_join(self, part: exp.Expr, found: Normal) -> bool:
        """Whether it equates columns of two tables, or a date's part such as its month."""
        if not isinstance(part, exp.EQ) or len(found.parts) != 2:
            return False
        left, right = ({table for table, _ in side.columns} for side in found.parts)
        return (
            bool(left)
            and bool(right)
            and not left & right
            and all(
                _is_column(side) or all(map(self._is_date, side.columns)) for side in found.parts
            )
        )

    def _of(self, node: exp.Expr) -> Normal:
        match node:
            case exp.Paren() | exp.Alias():
                return self.normal(node.this)
            case exp.Column():
                return self._column(node)
            case exp.Subquery() | exp.Select() | exp.SetOperation():
                return self._subquery(node)
            case exp.Filter():
                return self._aggregate(node.this, node.expression.this)
            case exp.AggFunc():
                return self._aggregate(node, None)
            case exp.Literal():
                return Normal(_literal(node))
            case exp.Nullif() if _is_number(node.expression, 0):
                return self.normal(node.this)
            case exp.Mul() if _is_number(node.left, 1):
                return self.normal(node.right)
            case exp.Mul() if _is_number(node.right, 1):
                return self.normal(node.left)
        return self._compound(node)

    def _compound(self, node: exp.Expr) -> Normal:
        children = [each for each in _children(node) if not isinstance(each, exp.Identifier)]
        parts = [self.normal(each) for each in children]
        kind = _MIRRORED.get(type(node), type(node))
        if kind is not type(node):
            parts.reverse()
        texts = [part.text for part in parts]
        if isinstance(node, exp.In):
            texts[1:] = sorted(texts[1:])
        if isinstance(node, exp.Not) and isinstance(node.this, exp.EQ):
            kind, texts = exp.NEQ, [part.text for part in parts[0].parts]
        if kind in _COMMUTATIVE:
            texts.sort()
        name = node.name.upper() if isinstance(node, exp.Anonymous) else kind.__name__.upper()
        if isinstance(node, exp.Boolean | exp.DataType | exp.Var | exp.Star):
            name = node.sql().upper()
        return _made_of(f"{name}({', '.join(texts)})" if texts else name, parts)

    def _aggregate(self, node: exp.Expr, condition: exp.Expr | None) -> Normal:
        """An aggregate, its conditions taken out of it: CASE without a value otherwise, FILTER."""
        argument = node.this
        own: set[Filter] = set(self.filters(condition))
        if isinstance(node, exp.Sum | exp.Count) and isinstance(argument, exp.Case):
            value = _value_if(argument, is_sum=isinstance(node, exp.Sum))
            if value is not None:
                own |= self.filters(argument.args["ifs"][0].this)
                argument = value
        if isinstance(node, exp.Sum):
            return self._sum(argument, frozenset(own))
        inside = None if argument is None else self._inside(argument)
        counts_rows = isinstance(node, exp.Count) and (
            inside is None or isinstance(argument, exp.Star | exp.Literal)
        )
        text = "COUNT(*)" if counts_rows else f"{type(node).__name__.upper()}({_text(inside)})"
        return self._over_rows(text, inside, frozenset(own))

    def _sum(self, argument: exp.Expr, own: frozenset[Filter]) -> Normal:
        while isinstance(argument, exp.Paren) or (
            isinstance(argument, exp.Coalesce)
            and len(argument.expressions) == 1
            and _is_number(argument.expressions[0], 0)
        ):
            argument = argument.this
        return self._split(self._inside(argument), own)

    def _split(self, inside: Normal, own: frozenset[Filter]) -> Normal:
        """The sum of a sum is the sums of its sides where none of them is ever NULL."""
        if inside.text == "1":
            return self._over_rows("COUNT(*)", None, own)
        kind = inside.text.partition("(")[0]
        never_null = not any(map(self._is_nullable, inside.columns))
        if kind not in _SPLIT or not never_null or not _is_arithmetic(inside):
            return self._over_rows(f"SUM({inside.text})", inside, own)
        sides = [self._split(part, own) for part in inside.parts]
        texts = [side.text for side in sides]
        if kind == "ADD":
            texts.sort()
        return _made_of(f"{kind}({', '.join(texts)})", sides)

    def _over_rows(self, text: str, inside: Normal | None, own: frozenset[Filter]) -> Normal:
        parts = () if inside is None else (inside,)
        columns = frozenset[Column]() if inside is None else inside.columns
        below = frozenset[Filter]() if inside is None else inside.filters
        grouped = frozenset[Column]() if inside is None else inside.groups
        return Normal(
            text,
            columns,
            self._rows.filters | own | below,
            self._rows.groups | grouped,
            has_aggregate=True,
            parts=parts,
        )

    def _inside(self, argument: exp.Expr) -> Normal:
        if isinstance(argument, exp.Distinct):
            inside = [self.normal(each) for each in argument.expressions]
            return _made_of(f"DISTINCT {', '.join(each.text for each in inside)}", inside)
        return self.normal(argument)


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The parts of ``condition`` that AND combines."""
    if condition is None:
        return []
    condition = condition.unnest()
    if not isinstance(condition, exp.And):
        return [condition]
    return [part for side in condition.flatten() for part in conjuncts(side)]


def over(found: Normal, rows: Rows) -> Normal:
    """An aggregate of a subquery, as the rows of the enclosing SELECT narrow it further."""
    if not found.has_aggregate:
        return found
    return replace(
        found,
        filters=found.filters | rows.filters,
        groups=found.groups | rows.groups,
        parts=tuple(over(part, rows) for part in found.parts),
    )


def _made_of(text: str, parts: Iterable[Normal]) -> Normal:
    kept = tuple(parts)
    return Normal(
        text,
        frozenset().union(*(part.columns for part in kept)),
        frozenset().union(*(part.filters for part in kept)),
        frozenset().union(*(part.groups for part in kept)),
        has_aggregate=any(part.has_aggregate for part in kept),
        parts=kept,
    )


def _children(node: exp.Expr) -> Iterable[exp.Expr]:
    for value in node.args.values():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, exp.Expr):
                yield each


def _value_if(case: exp.Case, *, is_sum: bool) -> exp.Expr | None:
    """Value of a CASE with one branch that adds nothing to the aggregate otherwise."""
    branches, otherwise = case.args["ifs"], case.args.get("default")
    adds_nothing = (
        otherwise is None
        or isinstance(otherwise, exp.Null)
        or (is_sum and _is_number(otherwise, 0))
    )
    if case.this is not None or len(branches) != 1 or not adds_nothing:
        return None
    value: exp.Expr = branches[0].args["true"]
    return value


def _is_column(found: Normal) -> bool:
    return {found.text} == {f"{table}.{name}" for table, name in found.columns}


def _is_arithmetic(found: Normal) -> bool:
    """Whether it is made of columns and numbers alone, added, subtracted and multiplied."""
    if found.has_aggregate:
        return False
    if found.parts:
        return found.text.partition("(")[0] in _ARITHMETIC and all(map(_is_arithmetic, found.parts))
    return len(found.columns) == 1 or found.text.replace(".", "", 1).isdecimal()


def _literal(node: exp.Literal) -> str:
    return repr(node.this) if node.is_string else _number(node.this)


def _number(text: str) -> str:
    return format(Decimal(text).normalize(), "f")


def _is_number(node: exp.Expr | None, value: int) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and _number(node.this) == str(value)


def _text(inside: Normal | None) -> str:
    return "*" if inside is None else inside.text
