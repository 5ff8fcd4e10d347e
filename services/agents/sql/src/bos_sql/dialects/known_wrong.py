"""Rules for queries whose translation by sqlglot is known to be wrong: it fails or differs.

Found by running sqlglot's translations between PostgreSQL, SQLite and SQL Server. Each rule is a
pattern of the syntax tree, and the dialects between which its translation is not equivalent.
Settings of a database, such as case-insensitive collations of SQL Server, are not considered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from bos_sqlguard import DIALECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bos_sql.dialects.kinds import Kinds
    from bos_sqlguard import Dialect

    Finds = Callable[[exp.Expr, Kinds], bool]

_ALL: frozenset[Dialect] = frozenset(DIALECTS)
_FORMAT = re.compile(r"(?:%[Ymd]|[-/. ])+")
_LETTER = re.compile(r"[^\W\d_]")
# Expressions that read rows of their own, so that columns in them need no GROUP BY.
_COMPLETE = (exp.AggFunc, exp.Filter, exp.WithinGroup, exp.Subquery, exp.Select)
_SUBTOTALS = (exp.Rollup, exp.Cube, exp.GroupingSets)
_COMMON_PARTS = frozenset({"YEAR", "QUARTER", "MONTH", "DAY", "HOUR"})


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern, and the dialects between which its translation is wrong."""

    reason: str
    finds: Finds
    sources: frozenset[Dialect] = _ALL
    targets: frozenset[Dialect] = _ALL


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Pattern: nodes of some types, optionally with a condition."""

    types: tuple[type[exp.Expr], ...]
    when: Callable[[exp.Expr, Kinds], bool] | None = None

    def __call__(self, tree: exp.Expr, kinds: Kinds) -> bool:
        found = tree.find_all(*self.types)
        return any(self.when is None or self.when(each, kinds) for each in found)


def known_wrong(tree: exp.Expr, kinds: Kinds, source: Dialect, target: Dialect) -> str:
    """Why the translation of ``tree`` would be wrong; empty if no rule matches."""
    present = {type(node) for node in tree.walk()}
    for rule in _RULES:
        if source not in rule.sources or target not in rule.targets:
            continue
        # Skips the search for rules whose node types do not occur in the query.
        if isinstance(rule.finds, _Nodes) and not any(
            issubclass(each, rule.finds.types) for each in present
        ):
            continue
        if rule.finds(tree, kinds):
            return rule.reason
    return ""


def _has(*nodes: type[exp.Expr]) -> Finds:
    return _Nodes(nodes)


def _any(*nodes: type[exp.Expr], when: Callable[[exp.Expr, Kinds], bool]) -> Finds:
    return _Nodes(nodes, when)


def _part(node: exp.Expr) -> str:
    unit = node.args.get("unit") if isinstance(node, exp.DateTrunc | exp.TimestampTrunc) else None
    return str((unit or node.this).name).upper()


def _uses_clock(tree: exp.Expr, _: Kinds) -> bool:
    if tree.find(exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentTime, exp.Localtimestamp):
        return True
    return any(
        each.is_string and each.name.casefold() == "now" for each in tree.find_all(exp.Literal)
    )


def _has_date_arithmetic(node: exp.Expr, kinds: Kinds) -> bool:
    sides = {kinds.of(node.left), kinds.of(node.right)}  # type: ignore[attr-defined]
    return not sides.isdisjoint({"date", "moment"})


def _ends_at_midnight(node: exp.Expr, kinds: Kinds) -> bool:
    """Whether a moment is compared; in SQLite, as texts, midnight sorts after its day."""
    sides = (node.this, node.expression, node.args.get("high"))
    return "moment" in {kinds.of(side) for side in sides if isinstance(side, exp.Expr)}


def _counts_from_the_end(node: exp.Expr, _: Kinds) -> bool:
    start = node.args.get("start")
    return not (isinstance(start, exp.Literal) and start.is_int and int(start.name) > 0)


def _is_made_whole(node: exp.Expr, kinds: Kinds) -> bool:
    """Whether a number is cast to a whole one: PostgreSQL rounds, the others truncate."""
    to_whole = node.args["to"].this in exp.DataType.INTEGER_TYPES
    return to_whole and kinds.of(node.this) in ("decimal", "float")


def _has_odd_format(node: exp.Expr, kinds: Kinds) -> bool:
    wanted = node.args.get("format")
    pattern = wanted.name if isinstance(wanted, exp.Literal) else ""
    return not _FORMAT.fullmatch(pattern) or kinds.of(node.this) in ("int", "decimal", "float")


def _keeps_ties(node: exp.Expr, _: Kinds) -> bool:
    options = node.args.get("limit_options")
    return bool(options and options.args.get("with_ties"))


def _is_distinct(node: exp.Expr, _: Kinds) -> bool:
    return isinstance(node.this, exp.Distinct) or node.find(exp.Distinct) is not None


def _is_unlike_text(node: exp.Expr, kinds: Kinds) -> bool:
    return any(kinds.of(side) != "text" for side in node.flatten())


def _divides_maybe_whole_numbers(node: exp.Expr, kinds: Kinds) -> bool:
    """Whether SQLite may divide integers, as which it stores decimals without fraction."""
    sides = (node.left, node.right)  # type: ignore[attr-defined]
    if any(_is_surely_fractional(side) for side in sides):
        return False
    return any(kinds.of(side) != "int" for side in sides)


def _is_surely_fractional(node: exp.Expr) -> bool:
    if isinstance(node, exp.Literal):
        return not node.is_string and not node.is_int
    if isinstance(node, exp.Cast):
        return node.to.this in (exp.DType.FLOAT, exp.DType.DOUBLE)
    if isinstance(node, exp.Paren | exp.Round):
        return _is_surely_fractional(node.this)
    if isinstance(node, exp.Mul | exp.Div):
        return any(_is_surely_fractional(side) for side in (node.left, node.right))
    return isinstance(node, exp.Avg)


def _averages_whole_numbers(node: exp.Expr, kinds: Kinds) -> bool:
    return kinds.of(node.this) not in ("decimal", "float")


def _is_condition(node: exp.Expr) -> bool:
    return isinstance(node, exp.Predicate | exp.Connector | exp.Not | exp.Boolean)


def _is_decimal(node: exp.Expr, *, places: bool) -> bool:
    kind = node.args["to"]
    return kind.this == exp.DType.DECIMAL and bool(kind.expressions) == places


def _is_used_as_value(node: exp.Expr, _: Kinds) -> bool:
    """Whether a condition is used as a value."""
    child, parent = node, node.parent
    while isinstance(parent, exp.Paren):
        child, parent = parent, parent.parent
    if isinstance(parent, exp.If):
        return parent.this is not child
    if isinstance(parent, exp.Case):
        return True
    allowed = (exp.Where, exp.Having, exp.Join, exp.Connector, exp.Not)
    return not isinstance(parent, allowed)


def _tests_a_value(node: exp.Expr, _: Kinds) -> bool:
    """Whether a plain value is used as a condition."""
    tested = [node.this]
    if isinstance(node, exp.Connector):
        tested = [node.left, node.right]
    elif isinstance(node, exp.Join):
        tested = [node.args["on"]] if node.args.get("on") else []
    return any(not _is_condition(each.unnest()) for each in tested)


def _compares_truth_with_number(node: exp.Expr, kinds: Kinds) -> bool:
    sides = (node.left, node.right)  # type: ignore[attr-defined]
    return {kinds.of(side) for side in sides} == {"bool", "int"}


def _is_sorted_inside(node: exp.Expr, _: Kinds) -> bool:
    """Whether this is a sorted subquery without a limit, which SQL Server refuses."""
    if node.parent_select is None and not isinstance(node.parent, exp.CTE):
        return False
    return bool(node.args.get("order")) and not node.args.get("limit")


def _selects(tree: exp.Expr) -> Iterator[exp.Select]:
    yield from tree.find_all(exp.Select)


def _reads_ungrouped_columns(tree: exp.Expr, _: Kinds) -> bool:
    return any(_is_ungrouped(select) for select in _selects(tree))


def _is_ungrouped(select: exp.Select) -> bool:
    group = select.args.get("group")
    grouped = {each.sql() for each in group.expressions} if group else set()
    names = (
        {each.name for each in group.expressions if isinstance(each, exp.Column)}
        if group
        else set()
    )
    if group and group.find(*_SUBTOTALS):
        return False
    if not group and not any(_own(each, exp.AggFunc) for each in select.expressions):
        return False
    return any(
        _is_loose(each.unalias(), grouped)
        for place, each in enumerate(select.expressions, 1)
        if str(place) not in grouped and not (each.alias and each.alias in names)
    )


def _own(node: exp.Expr, kind: type[exp.Expr]) -> bool:
    """Whether ``kind`` occurs in the expression itself, outside windows and subqueries."""
    if isinstance(node, exp.Window | exp.Subquery | exp.Select):
        return False
    return isinstance(node, kind) or any(_own(each, kind) for each in node.iter_expressions())


def _is_loose(node: exp.Expr, grouped: set[str]) -> bool:
    if isinstance(node, _COMPLETE) or node.sql() in grouped:
        return False
    if isinstance(node, exp.Column):
        return True
    return any(_is_loose(each, grouped) for each in node.iter_expressions())


def _filters_by_alias(tree: exp.Expr, kinds: Kinds) -> bool:
    for select in _selects(tree):
        aliases = {each.alias.casefold() for each in select.expressions if each.alias}
        for clause in (select.args.get("where"), select.args.get("having")):
            for column in clause.find_all(exp.Column) if clause else ():
                name = column.name.casefold()
                if not column.table and name in aliases and name not in kinds.columns:
                    return True
    return False


def _groups_by_ambiguous_alias(tree: exp.Expr, kinds: Kinds) -> bool:
    """Whether it groups by a name that is both an alias and a column."""
    for select in _selects(tree):
        group = select.args.get("group")
        made = {
            each.alias.casefold()
            for each in select.expressions
            if isinstance(each, exp.Alias) and not isinstance(each.this, exp.Column)
        }
        for each in group.expressions if group else ():
            name = each.name.casefold() if isinstance(each, exp.Column) and not each.table else ""
            if name in made and name in kinds.columns:
                return True
    return False


_POSTGRES: frozenset[Dialect] = frozenset({"postgres"})
_SQLITE: frozenset[Dialect] = frozenset({"sqlite"})
_TSQL: frozenset[Dialect] = frozenset({"tsql"})
_CONDITIONS = (exp.Predicate, exp.Connector, exp.Not)
_PERCENTILES = (exp.PercentileCont, exp.PercentileDisc, exp.Mode, exp.Median)
_REGULAR = (exp.RegexpLike, exp.RegexpILike, exp.RegexpReplace, exp.RegexpExtract, exp.Glob)
_ARRAYS = (exp.Array, exp.Any, exp.All, exp.ArrayAgg, exp.Unnest, exp.GenerateSeries, exp.Lateral)
_JSON = (exp.JSONExtract, exp.JSONExtractScalar, exp.JSONObject)
_TO_DATE = (exp.StrToTime, exp.StrToDate, exp.StrToUnix, exp.TsOrDsToDate)

_RULES: tuple[Rule, ...] = (
    Rule("the clock of another database", _uses_clock),
    Rule("an interval", _has(exp.Interval)),
    Rule("arithmetic with dates", _any(exp.Add, exp.Sub, when=_has_date_arithmetic)),
    Rule("the start of a period", _has(exp.DateTrunc, exp.TimestampTrunc), targets=_SQLITE),
    Rule(
        "the start of a week or the like",
        _any(
            exp.DateTrunc,
            exp.TimestampTrunc,
            when=lambda node, _: _part(node) not in _COMMON_PARTS,
        ),
    ),
    Rule("a part of a date", _has(exp.Extract), targets=_SQLITE),
    Rule(
        "a part of a date that is counted differently",
        _any(exp.Extract, when=lambda node, _: _part(node) not in _COMMON_PARTS),
    ),
    # sqlglot copies functions that it does not know, whose names may mean something else.
    Rule("a function that only one of the dialects has", _has(exp.Anonymous)),
    Rule("a date function of SQLite", _has(exp.Date), sources=_SQLITE, targets=_TSQL),
    Rule("a format of dates or numbers", _any(exp.TimeToStr, when=_has_odd_format)),
    Rule("a format of dates or numbers", _has(exp.ToChar, exp.ToNumber)),
    Rule("a date read from text", _has(*_TO_DATE), sources=_POSTGRES),
    Rule(
        "a time stored as text",
        _any(
            exp.Cast,
            when=lambda node, _: node.args["to"].is_type("timestamp", "timestamptz", "time"),
        ),
        targets=_SQLITE,
    ),
    Rule(
        "a moment compared up to a day",
        _any(exp.LTE, exp.GT, exp.EQ, exp.NEQ, exp.Between, when=_ends_at_midnight),
        sources=_SQLITE,
    ),
    Rule(
        "a moment compared up to a day",
        _any(exp.LTE, exp.GT, exp.EQ, exp.NEQ, exp.Between, when=_ends_at_midnight),
        targets=_SQLITE,
    ),
    Rule("a part of a text counted from its end", _any(exp.Substring, when=_counts_from_the_end)),
    Rule("a number made whole", _any(exp.Cast, when=_is_made_whole), sources=_POSTGRES),
    Rule("a number made whole", _any(exp.Cast, when=_is_made_whole), targets=_POSTGRES),
    Rule("a function that only newer versions of SQLite have", _has(exp.Concat), targets=_SQLITE),
    Rule(
        "a sorted list, which only newer versions of SQLite have",
        _any(exp.GroupConcat, when=lambda node, _: isinstance(node.this, exp.Order)),
        targets=_SQLITE,
    ),
    Rule("ties with the last row", _any(exp.Fetch, when=_keeps_ties), targets=_SQLITE),
    Rule("DISTINCT ON", _any(exp.Distinct, when=lambda node, _: bool(node.args.get("on")))),
    Rule(
        "a list of distinct texts",
        _any(exp.GroupConcat, when=_is_distinct),
        targets=_SQLITE | _TSQL,
    ),
    Rule(
        "a list of values that are no texts",
        _any(
            exp.GroupConcat,
            when=lambda node, kinds: kinds.of(node.this.find(exp.Column) or node.this) != "text",
        ),
        sources=_SQLITE,
        targets=_POSTGRES,
    ),
    Rule("percentiles", _has(*_PERCENTILES)),
    Rule("subtotals", _has(*_SUBTOTALS), targets=_SQLITE),
    Rule(
        "a join by common names",
        _any(
            exp.Join,
            when=lambda node, _: (
                bool(node.args.get("using")) or node.args.get("method") == "NATURAL"
            ),
        ),
        targets=_TSQL,
    ),
    Rule("a comparison of rows", _has(exp.Tuple), targets=_TSQL),
    Rule(
        "LIKE, which heeds upper and lower case in one of the dialects only",
        _any(exp.Like, when=lambda node, _: bool(_LETTER.search(node.expression.sql()))),
        sources=_POSTGRES,
        targets=_SQLITE | _TSQL,
    ),
    Rule(
        "LIKE, which heeds upper and lower case in one of the dialects only",
        _any(exp.Like, when=lambda node, _: bool(_LETTER.search(node.expression.sql()))),
        sources=_SQLITE,
        targets=_POSTGRES,
    ),
    Rule("ILIKE", _has(exp.ILike), targets=_TSQL),
    Rule("a regular expression", _has(*_REGULAR)),
    Rule("a condition used as a value", _any(*_CONDITIONS, when=_is_used_as_value)),
    Rule(
        "a value used as a condition",
        _any(exp.Where, exp.Having, exp.Connector, exp.Not, exp.Join, when=_tests_a_value),
        sources=_SQLITE,
        targets=_POSTGRES,
    ),
    Rule(
        "a truth value compared with a number",
        _any(exp.EQ, exp.NEQ, when=_compares_truth_with_number),
        sources=_SQLITE,
        targets=_POSTGRES,
    ),
    Rule(
        "IS TRUE",
        _any(exp.Is, when=lambda node, _: isinstance(node.expression, exp.Boolean)),
        targets=_TSQL,
    ),
    Rule("AND or OR over all rows", _has(exp.LogicalAnd, exp.LogicalOr)),
    Rule("joining what may be no text", _any(exp.DPipe, when=_is_unlike_text), targets=_TSQL),
    Rule("the length of a text, without blanks at its end", _has(exp.Length), targets=_TSQL),
    Rule(
        "a decimal without places, which SQL Server rounds",
        _any(exp.Cast, when=lambda node, _: _is_decimal(node, places=False)),
        targets=_TSQL,
    ),
    Rule(
        "a decimal with places, which SQLite does not round",
        _any(exp.Cast, when=lambda node, _: _is_decimal(node, places=True)),
        targets=_SQLITE,
    ),
    Rule(
        "a division of what may be whole numbers",
        _any(exp.Div, exp.Mod, when=_divides_maybe_whole_numbers),
        sources=_SQLITE,
    ),
    Rule(
        "a division of what may be whole numbers",
        _any(exp.Div, exp.Mod, when=_divides_maybe_whole_numbers),
        targets=_SQLITE,
    ),
    Rule(
        "an average of whole numbers",
        _any(exp.Avg, when=_averages_whole_numbers),
        targets=_TSQL,
    ),
    Rule(
        "rounding of a binary number",
        _any(
            exp.Round,
            when=lambda node, kinds: (
                bool(node.args.get("decimals")) and kinds.of(node.this) == "float"
            ),
        ),
        sources=_SQLITE,
        targets=_POSTGRES,
    ),
    Rule("the greatest of several values", _has(exp.Greatest, exp.Least), sources=_SQLITE),
    Rule("the greatest of several values", _has(exp.Greatest, exp.Least), targets=_SQLITE),
    Rule("columns that are not grouped", _reads_ungrouped_columns, targets=_TSQL),
    Rule(
        "columns that are not grouped",
        _reads_ungrouped_columns,
        sources=_SQLITE,
        targets=_POSTGRES,
    ),
    Rule("a condition on a column's new name", _filters_by_alias, sources=_SQLITE),
    Rule("a group whose name means two things", _groups_by_ambiguous_alias),
    Rule(
        "a sorted set operation",
        _any(exp.SetOperation, when=lambda node, _: bool(node.args.get("order"))),
        sources=_POSTGRES,
        targets=_TSQL,
    ),
    Rule(
        "distinct rows in an order",
        _any(
            exp.Select,
            when=lambda node, _: bool(node.args.get("distinct")) and bool(node.args.get("order")),
        ),
        sources=_POSTGRES,
        targets=_TSQL,
    ),
    Rule("a sorted subquery", _any(exp.Select, when=_is_sorted_inside), targets=_TSQL),
    Rule(
        "a window by name",
        _any(exp.Select, when=lambda node, _: bool(node.args.get("windows"))),
        targets=_TSQL,
    ),
    Rule(
        "WITH in a subquery",
        _any(
            exp.With,
            when=lambda node, _: (
                node.parent_select is not node.root() and node.parent is not node.root()
            ),
        ),
        targets=_TSQL,
    ),
    Rule("arrays, series and lateral joins", _has(*_ARRAYS)),
    Rule("JSON", _has(*_JSON)),
    Rule("chance", _has(exp.Rand, exp.Randn)),
)
