"""Bounds what a query can make out of nothing: its values, its series, what its aggregates hold.

Every value gets an upper bound from the bounds of what it is made of, through subqueries and CTEs.
Tables are taken as they are; multiplying what they hold is bounded as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from bos_sqlguard.growth.crossing import is_crossed
from bos_sqlguard.growth.series import LONGEST_SERIES, SERIES, rows_of_series
from bos_sqlguard.growth.sizes import (
    EVERY_MATCH,
    KEEPING,
    NUMBER,
    TABLE,
    Scope,
    Size,
    Source,
    largest,
    size_of_call,
    size_of_cast,
    size_of_literal,
    size_of_padding,
    size_of_power,
    size_of_text,
    total,
)
from bos_sqlguard.growth.sources import (
    QUERIES,
    alias_of,
    all_of,
    by_need,
    children_of,
    either,
    is_aggregated,
    limited,
    operands,
    output_name,
    renamed,
    rows_of_steps,
    size_of_column,
    star_of,
)
from bos_sqlguard.growth.work import TooMuchWork, Work
from bos_sqlguard.names import Dialect

_VALUE_BYTES = 100_000
_VALUE_COPIES = 200
_ROW_BYTES = 300_000
_KEPT_BYTES = 10_000_000
# An aggregate over a table may have any number of rows.
_KEPT_PER_ROW_BYTES = 500
_KEPT_COPIES = 40
_KEPT_TOGETHER_BYTES = 20_000
_ELEMENT_BYTES = 16
_AGGREGATED = Size(natural=10.0)
# Bytes that a step of a recursive query may add to what it made before, and how many steps count.
_STEP_BYTES = 200
_STEP_COPIES = 20
_STEPS = 10

_ONCE_MORE = Size(again=1.0)
_OUTPUT = "?output"
_ANSWERS = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.And, exp.Or, exp.Not, exp.Is, exp.In,
    exp.Between, exp.Exists, exp.Any, exp.All, exp.Like, exp.ILike, exp.SimilarTo, exp.Glob,
    exp.RegexpLike, exp.RegexpILike, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Extract, exp.StrPosition,
    exp.ArrayContainsAll, exp.ArrayContainedBy, exp.ArrayOverlaps, exp.JSONBContainsTopKey,
    exp.Xor,
)  # fmt: skip
_ARITHMETIC = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.BitwiseAnd,
    exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot,
    exp.BitwiseLeftShift, exp.BitwiseRightShift,
)  # fmt: skip

# What a function goes by that means something else in a dialect.
_OTHERWISE = {("mysql", "regexp_replace"): EVERY_MATCH, ("duckdb", "strftime"): "to_char"}
# Aggregates of DuckDB that list as many values as one argument more says.
_LISTING = {"min": 1, "max": 1, "arg_min": 2, "arg_max": 2, "min_by": 2, "max_by": 2}

Broken = tuple[str, str]


class GrowthCheck:
    """One look at one tree; ``broken`` is the outcome. The tree must have passed the inspection."""

    def __init__(self, dialect: Dialect, work: Work | None = None) -> None:
        self._dialect = dialect
        self._work = work or Work()
        self.broken: list[Broken] = []
        self.kept: list[tuple[str, Size]] = []
        """Calls that keep values of rows of tables: function and size of what it keeps of a row."""

    def check(self, tree: exp.Expr) -> None:
        """Work out the bounds of everything in ``tree``."""
        try:
            self._query(tree, {}, ())
        except TooMuchWork as error:
            self._grows(str(error))

    # queries

    def _query(
        self, node: exp.Expr, ctes: Mapping[str, Source], outer: tuple[Scope, ...]
    ) -> Source:
        ctes = self._with(node, ctes, outer)
        if isinstance(node, exp.Subquery):
            # `(SELECT …) JOIN …` may follow within the brackets.
            found = self._query(node.this, ctes, outer)
            scope = {alias_of(node) or "?": renamed(found, node)}
            if node.args.get("joins") or node.args.get("laterals"):
                self._join(node, scope, ctes, outer)
                found = replace(all_of(scope), crossed=self._is_crossed(node, scope))
        elif isinstance(node, exp.SetOperation):
            left = self._query(node.this, ctes, outer)
            found = either(left, self._query(node.expression, ctes, outer))
            self._expressions(node, ("order", "limit", "offset"), {}, ctes, outer)
        elif isinstance(node, exp.Values):
            found = self._values(node, ctes, outer)
        elif isinstance(node, exp.Select):
            found = self._select(node, ctes, outer)
        else:  # a table in brackets
            found = self._source(node, {}, ctes, outer)
        return self._work.measured(limited(found, node))

    def _with(
        self, node: exp.Expr, ctes: Mapping[str, Source], outer: tuple[Scope, ...]
    ) -> Mapping[str, Source]:
        with_ = node.args.get("with_")
        if with_ is None:
            return ctes
        known = dict(ctes)
        for cte in by_need(with_.expressions, self._work):
            name, query = alias_of(cte), cte.this
            if isinstance(query, exp.SetOperation) and self._work.mentions(query, name):
                known[name] = self._recursive(cte, known, outer)
            else:
                known[name] = renamed(self._query(query, known, outer), cte)
        return known

    def _recursive(
        self, cte: exp.CTE, ctes: Mapping[str, Source], outer: tuple[Scope, ...]
    ) -> Source:
        """A query that goes on from its own rows: a step may add, and must not multiply."""
        query, name = cte.this, alias_of(cte)
        ctes = self._with(query, ctes, outer)
        begins = [part for part in operands(query) if not self._work.mentions(part, name)]
        steps = [part for part in operands(query) if self._work.mentions(part, name)]
        first = Source()
        for part in begins:
            found = self._query(part, ctes, outer)
            first = either(first, found) if part is not begins[0] else found
        first = renamed(first, cte)
        made = rows_of_steps(query, steps) * max(1.0, first.rows)
        found = replace(first, columns=list(first.columns))
        for part in steps:
            step = self._step(name, part, first, ctes, outer)
            natural = found.natural or step.natural
            found = replace(either(found, step), natural=natural, open=first.open)
            if not step.natural:
                found.rows = max(found.rows, made)
        return found

    def _step(
        self,
        name: str,
        query: exp.Expr,
        first: Source,
        ctes: Mapping[str, Source],
        outer: tuple[Scope, ...],
    ) -> Source:
        """What a step of a recursive query gives, after as many of them as are usual."""
        before = replace(first, columns=[(each, _ONCE_MORE) for each, _ in first.columns])
        # What a step computes as a number does not grow, independent of its inputs.
        silent = GrowthCheck(self._dialect, self._work)
        looked = silent._query(query, {**ctes, name: before}, outer).columns
        before.columns = [
            (each, _ONCE_MORE if place >= len(looked) or looked[place][1].again else NUMBER)
            for place, (each, _) in enumerate(first.columns)
        ]
        step = self._query(query, {**ctes, name: before}, outer)
        columns = []
        for place, (column, begun) in enumerate(first.columns):
            added = step.columns[place][1] if place < len(step.columns) else step.any_column
            if added.again > 1:
                self._grows(f"the recursive query {name} multiplies {column}")
            elif added.again and (added.made > _STEP_BYTES or added.natural > _STEP_COPIES):
                self._grows(f"the recursive query {name} adds too much to {column}")
            if added.again:
                copies = _AGGREGATED.natural if added.natural else 0.0
                added = begun + Size(min(added.made, _STEP_BYTES) * _STEPS, copies)
            columns.append((column, added))
        return replace(step, columns=columns)

    def _values(
        self, node: exp.Values, ctes: Mapping[str, Source], outer: tuple[Scope, ...]
    ) -> Source:
        columns: list[tuple[str, Size]] = []
        for row in node.expressions:
            cells = row.expressions if isinstance(row, exp.Tuple) else [row]
            for place, cell in enumerate(cells):
                size = self._expression(cell, {}, ctes, outer)
                if place < len(columns):
                    columns[place] = (columns[place][0], columns[place][1].at_least(size))
                else:
                    columns.append((f"column{place + 1}", size))
        return renamed(Source(columns, rows=len(node.expressions)), node)

    def _select(
        self, node: exp.Select, ctes: Mapping[str, Source], outer: tuple[Scope, ...]
    ) -> Source:
        scope: Scope = {}
        from_ = node.args.get("from_")
        if from_ is not None:
            self._add(from_.this, scope, ctes, outer)
        self._join(node, scope, ctes, outer)
        crossed = self._is_crossed(node, scope)
        columns: list[tuple[str, Size]] = []
        is_open = False
        for each in node.expressions:
            star = star_of(each)
            if star is None:
                size = self._expression(each, scope, ctes, outer)
                columns.append((output_name(each), size))
                continue
            for source in [scope[star]] if star in scope else scope.values():
                columns += source.columns
                self._work.list_of(columns)
                is_open = is_open or source.open
        # SQLite lets every clause name what the query puts out.
        named = {**scope, _OUTPUT: Source(columns)}
        rest = (
            *("distinct", "where", "group", "having", "windows", "qualify", "order", "limit"),
            "offset",
        )
        self._expressions(node, rest, named, ctes, outer)
        if total([size for _, size in columns]).weight > _ROW_BYTES:
            self._grows(f"a row of more than {_ROW_BYTES:,} bytes")
        everything = self._work.measured(all_of(scope))
        found = Source(columns, everything.rows, everything.natural, is_open, crossed)
        if node.args.get("group") is None and any(map(is_aggregated, node.expressions)):
            found.rows, found.natural, found.crossed = 1.0, False, False
        return found

    def _is_crossed(self, node: exp.Expr, scope: Scope) -> bool:
        """Look at the sources of a query, which say from now on that they are crossed."""
        crossed = is_crossed(node, scope, self._work)
        for name, source in scope.items() if crossed else ():
            scope[name] = replace(source, crossed=True)
        return crossed

    # sources

    def _join(
        self,
        node: exp.Expr,
        scope: Scope,
        ctes: Mapping[str, Source],
        outer: tuple[Scope, ...],
    ) -> None:
        for join in node.args.get("joins") or ():
            self._add(join.this, scope, ctes, outer)
            if (on := join.args.get("on")) is not None:
                self._expression(on, scope, ctes, outer)
        for lateral in node.args.get("laterals") or ():
            self._add(lateral, scope, ctes, outer)

    def _add(
        self,
        node: exp.Expr,
        scope: Scope,
        ctes: Mapping[str, Source],
        outer: tuple[Scope, ...],
    ) -> None:
        name = alias_of(node) or getattr(node, "name", "").lower() or f"?{len(scope)}"
        while name in scope:
            self._work.spend(1)
            name += "?"
        scope[name] = self._work.measured(self._source(node, scope, ctes, outer))
        self._join(node, scope, ctes, outer)

    def _source(
        self,
        node: exp.Expr,
        scope: Scope,
        ctes: Mapping[str, Source],
        outer: tuple[Scope, ...],
    ) -> Source:
        inside = node.this
        if isinstance(node, exp.Unnest):
            return self._rows_of(node, "unnest", node.expressions, scope, ctes, outer)
        if isinstance(node, exp.Table | exp.Lateral) and isinstance(inside, exp.Anonymous):
            name = inside.name.lower()
            return self._rows_of(node, name, inside.expressions, scope, ctes, outer)
        if isinstance(node, exp.Table):
            known = None if node.args.get("db") else ctes.get(node.name.lower())
            return renamed(known, node) if known is not None else TABLE
        if isinstance(node, exp.Lateral):
            if isinstance(inside, exp.Unnest):
                return self._rows_of(node, "unnest", inside.expressions, scope, ctes, outer)
            return renamed(self._query(inside, ctes, (*outer, scope)), node)
        return renamed(self._query(node, ctes, (*outer, scope)), node)

    def _rows_of(
        self,
        node: exp.Expr,
        name: str,
        arguments: Sequence[exp.Expr],
        scope: Scope,
        ctes: Mapping[str, Source],
        outer: tuple[Scope, ...],
    ) -> Source:
        """A function that gives rows."""
        sizes = [self._expression(argument, scope, ctes, outer) for argument in arguments]
        alias = alias_of(node) or name
        if name in SERIES:
            # With one argument those of DuckDB begin at 0.
            from_zero = [exp.Literal.number(0), *arguments] if len(arguments) == 1 else arguments
            rows = rows_of_series(from_zero)
            if rows is None or rows > LONGEST_SERIES:
                self.broken.append(("SERIES_TOO_LONG", name))
            found = Source([(alias, NUMBER)], min(rows or LONGEST_SERIES, LONGEST_SERIES))
        else:
            given = total(sizes)
            columns = [(each, given) for each in (alias, "key", "value")]
            found = Source(columns, max(1.0, given.made), natural=bool(given.natural))
        return renamed(found, node)

    # expressions

    def _expressions(
        self,
        node: exp.Expr,
        keys: tuple[str, ...],
        scope: Scope,
        ctes: Mapping[str, Source],
        outer: tuple[Scope, ...],
    ) -> None:
        for key in keys:
            value = node.args.get(key)
            for each in value if isinstance(value, list) else (value,):
                if isinstance(each, exp.Expr):
                    self._expression(each, scope, ctes, outer)

    def _expression(
        self,
        root: exp.Expr,
        scope: Scope,
        ctes: Mapping[str, Source],
        outer: tuple[Scope, ...],
    ) -> Size:
        """The size of a value; parts first, without recursion: chains of operators are long."""
        nodes: list[exp.Expr] = []
        stack = [root]
        while stack:
            node = stack.pop()
            nodes.append(node)
            if not isinstance(node, (*QUERIES, exp.Subquery)):
                stack.extend(children_of(node))
        self._work.spend(len(nodes))
        sizes: dict[int, Size] = {}
        scopes = (*outer, scope)
        queries: dict[int, Source] = {}
        for node in reversed(nodes):
            if isinstance(node, (*QUERIES, exp.Subquery)):
                queries[id(node)] = found = self._query(node, ctes, scopes)
                size = found.any_column
            elif isinstance(node, exp.Column):
                self._work.look_up(scopes)
                size = size_of_column(node, scopes)
            else:
                children = list(children_of(node))
                parts = [sizes[id(child)] for child in children]
                if isinstance(node, exp.Window | exp.Filter | exp.WithinGroup):
                    size = sizes.get(id(node.this), Size())
                elif isinstance(node, exp.Anonymous):
                    size = self._call(node, parts, scope, queries)
                else:
                    size = self._operation(node, parts)
            if size.made > _VALUE_BYTES or size.natural > _VALUE_COPIES:
                shown = node.name if isinstance(node, exp.Anonymous) else node.key
                self._grows(f"{shown} makes values that are too long")
                size = Size(min(size.made, 1.0), min(size.natural, 1.0), min(size.again, 1.0))
            sizes[id(node)] = size
        return sizes[id(root)]

    def _call(
        self,
        node: exp.Anonymous,
        parts: list[Size],
        scope: Scope,
        queries: Mapping[int, Source],
    ) -> Size:
        name = node.name.lower()
        name = _OTHERWISE.get((self._dialect, name), name)
        if self._dialect == "duckdb" and len(node.expressions) > _LISTING.get(name, len(parts)):
            name = "list"  # such as max(x, n): the n largest
        if name not in KEEPING:
            return size_of_call(name, node.expressions, parts)
        inner = [queries[id(each)] for each in node.expressions if id(each) in queries]
        if name == "array" and not inner:
            return total(parts) + Size(_ELEMENT_BYTES * len(parts))
        over = inner[0] if name == "array" else self._work.measured(all_of(scope))
        if over.crossed:
            self.broken.append(("CROSS_JOIN_KEPT", name))
        given = total(parts)
        kept = over.rows * (given.made + _ELEMENT_BYTES)
        if kept > _KEPT_BYTES:
            self._grows(f"{name} would hold too much")
        elif over.natural and (
            given.made > _KEPT_PER_ROW_BYTES
            or given.natural + given.again > _KEPT_COPIES
            or over.rows * max(given.made, _ELEMENT_BYTES) > _KEPT_TOGETHER_BYTES
        ):
            self._grows(f"{name} would hold too much for each row")
        if over.natural:
            self.kept.append((name, given))
        made = Size(min(kept, _VALUE_BYTES))
        return made + _AGGREGATED if over.natural or given.natural else made

    def _operation(self, node: exp.Expr, parts: list[Size]) -> Size:
        """The size of what is no call: operators, casts, wrappers around a value."""
        if isinstance(node, exp.Literal):
            return size_of_literal(node)
        if isinstance(node, exp.RawString | exp.National):
            return size_of_text(node.name)
        if isinstance(node, _ANSWERS):
            return Size(1.0)
        if isinstance(node, exp.Pow):
            return size_of_power([node.this, node.expression], parts)
        text_may_be_added = self._dialect == "tsql" and isinstance(node, exp.Add)
        if isinstance(node, _ARITHMETIC) and not text_may_be_added:
            return Size(max(NUMBER.made, total(parts).made))
        if isinstance(node, exp.Cast):
            return size_of_cast(node, total(parts))
        if isinstance(node, exp.Convert):
            return total(parts) + size_of_padding(node.this)
        if isinstance(node, exp.Case | exp.If):
            return largest(parts)
        if isinstance(node, exp.Array):
            return total(parts) + Size(_ELEMENT_BYTES * len(parts))
        return total(parts)

    def _grows(self, detail: str) -> None:
        self.broken.append(("GROWTH_TOO_LARGE", detail))
