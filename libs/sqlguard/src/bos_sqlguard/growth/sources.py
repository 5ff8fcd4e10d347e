"""Sources of a query: columns with their sizes, by name or place, and rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from bos_sqlguard.growth.recursion import rows_of_recursion
from bos_sqlguard.growth.series import LONGEST_SERIES
from bos_sqlguard.growth.sizes import (
    AGGREGATES,
    NATURAL,
    UNNAMED,
    Scope,
    Size,
    Source,
    largest,
    number_of,
)
from bos_sqlguard.growth.work import Work

QUERIES = (exp.Select, exp.SetOperation, exp.Values)


def size_of_column(node: exp.Column, scopes: tuple[Scope, ...]) -> Size:
    """The size of what a column holds, wherever it comes from."""
    name, table = node.name.lower(), node.table.lower()
    for scope in reversed(scopes):
        if table:
            named = [source for alias, source in scope.items() if alias.rstrip("?") == table]
            if named:
                sizes = [
                    source.row if isinstance(node.this, exp.Star) else _of(source, name)
                    for source in named
                ]
                return largest(sizes)
            continue
        known = [source.named(name) for source in scope.values()]
        if found := [size for size in known if size is not None]:
            return largest(found)
        if name in scope:
            return scope[name].row
        if any(source.open for source in scope.values()):
            return largest([NATURAL, *(source.unnamed for source in scope.values())])
    return largest([NATURAL, *(s.any_column for scope in scopes for s in scope.values())])


def _of(source: Source, name: str) -> Size:
    found = source.named(name)
    if found is not None:
        return found
    return NATURAL if source.open and not source.columns else source.any_column


def alias_of(node: exp.Expr) -> str:
    """The name that a source goes by in its query; empty without one."""
    alias = node.args.get("alias")
    name = alias.this if isinstance(alias, exp.TableAlias) else alias
    return str(name.name).lower() if isinstance(name, exp.Expr) else ""


def renamed(source: Source, node: exp.Expr) -> Source:
    """The source with the columns that its alias names; by place, so the rest may be any."""
    alias = node.args.get("alias")
    names = alias.args.get("columns") or [] if isinstance(alias, exp.TableAlias) else []
    if not names:
        return source
    columns = []
    any_column = source.any_column
    for place, name in enumerate(names):
        known = not source.open and place < len(source.columns)
        size = source.columns[place][1] if known else any_column
        columns.append((str(name.name).lower(), size))
    return replace(source, columns=[*columns, *source.columns[len(names) :]])


def either(left: Source, right: Source) -> Source:
    """The rows of both, one after the other."""
    columns = list(left.columns)
    for place, (_, size) in enumerate(right.columns):
        if place < len(columns):
            columns[place] = (columns[place][0], columns[place][1].at_least(size))
    if left.open or right.open:  # places say nothing
        any_column = left.any_column.at_least(right.any_column)
        columns = [(name, any_column) for name, _ in columns]
    return Source(
        columns,
        left.rows + right.rows,
        left.natural or right.natural,
        left.open or right.open,
        left.crossed or right.crossed,
    )


def all_of(scope: Scope) -> Source:
    """All rows of all sources with one another."""
    found = Source()
    for source in scope.values():
        found.columns += source.columns
        found.rows *= source.rows
        found.natural = found.natural or source.natural
        found.open = found.open or source.open
        found.crossed = found.crossed or source.crossed
    return found


def limited(source: Source, node: exp.Expr) -> Source:
    """The source cut off at the limit that is written."""
    limit = node.args.get("limit")
    written = (
        limit.args.get("count" if isinstance(limit, exp.Fetch) else "expression") if limit else None
    )
    rows = number_of(written)
    if rows is None or rows < 0 or isinstance(written, exp.Null):
        return source
    fewer = min(rows, source.rows if not source.natural else rows)
    natural = source.natural and rows > LONGEST_SERIES
    return replace(source, rows=fewer, natural=natural, crossed=source.crossed and natural)


def star_of(node: exp.Expr) -> str | None:
    """Whose columns a star stands for; empty for all; None if it is no star."""
    if isinstance(node, exp.Star):
        return ""
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        return node.table.lower()
    return None


def output_name(node: exp.Expr) -> str:
    """What a column of the output is called."""
    if isinstance(node, exp.Alias):
        return node.alias.lower()
    if isinstance(node, exp.Column):
        return node.name.lower()
    return UNNAMED + (node.name.lower() if isinstance(node, exp.Anonymous) else "")


def is_aggregated(node: exp.Expr) -> bool:
    """Whether a column without a window is computed from all rows together."""
    stack = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, (exp.Window, *QUERIES, exp.Subquery)):
            continue
        if isinstance(part, exp.Anonymous) and part.name.lower() in AGGREGATES:
            return True
        stack.extend(children_of(part))
    return False


def by_need(ctes: Sequence[exp.CTE], work: Work) -> Iterator[exp.CTE]:
    """The CTEs, each behind those it reads: the server lets one read a later one."""
    waiting = list(ctes)
    while waiting:
        work.spend(len(waiting))
        names = Counter(alias_of(cte) for cte in waiting)
        ready = [
            cte
            for cte in waiting
            if not any(
                name != alias_of(cte) or names[name] > 1
                for name in work.read_by(cte.this) & names.keys()
            )
        ]
        # A circle is refused by the server.
        yield from ready or waiting
        done = set(map(id, ready))
        waiting = [cte for cte in waiting if id(cte) not in done] if ready else []


def operands(query: exp.Expr) -> list[exp.Expr]:
    """What a chain of set operations puts together."""
    found: list[exp.Expr] = []
    stack = [query]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.SetOperation):
            stack += [node.expression, node.this]
        else:
            found.append(node)
    return found


def rows_of_steps(query: exp.SetOperation, steps: Sequence[exp.Expr]) -> float:
    """How many rows a recursive query makes, by the step that makes most."""
    return max((rows_of_recursion(query, step) for step in steps), default=1.0)


def children_of(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a value, the one it is made from first."""
    for key, value in node.args.items():
        if key in {"alias", "to", "unit"} and not isinstance(node, exp.Anonymous):
            continue
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, exp.Expr) and not isinstance(each, exp.Identifier):
                yield each
