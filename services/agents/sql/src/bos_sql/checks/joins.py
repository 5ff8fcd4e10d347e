"""Joins that repeat rows (fan-out): ruled out by keys, or found by comparing counts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from bos_sql.checks.shape import Shape
from bos_sql.grounding.catalog import Table

_REPEATED_BY_ROWS = (exp.Sum, exp.Avg, exp.Count)
_JOINED, _DISTINCT = "joined_rows", "distinct_rows"


def measured_source(shape: Shape) -> str:
    """Alias of the one source whose columns are summed, averaged or counted; empty if none."""
    owners: set[str] = set()
    for measure in measures(shape):
        owners |= shape.owners(measure)
    return owners.pop() if len(owners) == 1 else ""


def measures(shape: Shape) -> list[exp.Expr]:
    """Aggregates that repeated rows would change, but COUNT(*), which is of joined rows."""
    found = []
    for expression in shape.select.expressions:
        for measure in expression.find_all(*_REPEATED_BY_ROWS):
            inside_query = measure.find_ancestor(exp.Subquery, exp.Window) is not None
            is_distinct = isinstance(measure.this, exp.Distinct)
            if not inside_query and not is_distinct and measure.find(exp.Column) is not None:
                found.append(measure)
    return found


def repeating_sources(shape: Shape, source: str) -> list[str]:
    """Aliases whose join may repeat rows of ``source``: not reached along their own keys."""
    edges = list(_edges(shape))
    reached = {source, *shape.single_rows}
    while True:
        further = {
            alias
            for alias, table in shape.tables.items()
            if alias not in reached and _is_unique(table, _joined_columns(edges, alias, reached))
        }
        if not further:
            return [alias for alias in shape.tables if alias not in reached]
        reached |= further


def fan_out_probe(shape: Shape) -> exp.Select | None:
    """Query for the joined and the distinct rows of the measured source.

    None where no join can repeat them, or they have no key of one column.
    """
    source = measured_source(shape)
    if not shape.joins or not source or not repeating_sources(shape, source):
        return None
    key = [field.name for field in shape.tables[source].fields if field.key == "primary key"]
    if len(key) != 1:
        return None
    column = exp.column(key[0], table=source)
    counts = [
        exp.alias_(exp.Count(this=column), _JOINED),
        exp.alias_(exp.Count(this=exp.Distinct(expressions=[column.copy()])), _DISTINCT),
    ]
    return shape.probe(counts, shape.filters)


def fan_out(shape: Shape, counts: Sequence[object]) -> str:
    """What the counts of a probe say, in one sentence; empty if no row is repeated."""
    if len(counts) != len((_JOINED, _DISTINCT)):
        return ""
    joined, distinct = counts
    if not isinstance(joined, int) or not isinstance(distinct, int) or joined <= distinct:
        return ""
    source = measured_source(shape)
    others = ", ".join(shape.tables[each].name for each in repeating_sources(shape, source))
    return shape.said(
        f"The join with {others} repeats rows of {shape.tables[source].name}: {distinct} of them"
        f" are counted {joined} times, so that totals and averages over them may be wrong."
    )


def _edges(shape: Shape) -> Iterator[tuple[str, str, str, str]]:
    """Equated columns of two sources: alias, column, other alias, other column."""
    before: list[str] = []
    for alias, join in zip(shape.tables, (None, *shape.joins), strict=True):
        if join is not None:
            for column in join.args.get("using") or ():
                for other in before:
                    yield alias, column.name.casefold(), other, column.name.casefold()
        before.append(alias)
    conditions = [join.args["on"] for join in shape.joins if join.args.get("on") is not None]
    where = shape.select.args.get("where")
    conditions += [where.this] if where is not None else []
    for condition in conditions:
        parts = condition.flatten() if isinstance(condition, exp.And) else [condition]
        for part in parts:
            if not isinstance(part, exp.EQ):
                continue
            left, right = part.left, part.right
            if isinstance(left, exp.Column) and isinstance(right, exp.Column):
                one, other = shape.owner(left), shape.owner(right)
                if one and other and one != other:
                    yield one, left.name.casefold(), other, right.name.casefold()


def _joined_columns(
    edges: Sequence[tuple[str, str, str, str]], alias: str, reached: set[str]
) -> set[str]:
    """Columns of ``alias`` that are equated with columns of sources reached before."""
    found = {column for one, column, other, _ in edges if one == alias and other in reached}
    return found | {column for one, _, other, column in edges if other == alias and one in reached}


def _is_unique(table: Table, columns: set[str]) -> bool:
    """Whether at most one row of the table has given values of these columns."""
    key = {field.name.casefold() for field in table.fields if field.key == "primary key"}
    unique = {field.name.casefold() for field in table.fields if field.key == "unique"}
    return bool(key and key <= columns) or bool(unique & columns)
