"""Breakdowns reconciled with their total by a second query. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from bos.common.v1 import Table
from bos_chassis.values import from_value
from bos_sql.checks.joins import measured_source
from bos_sql.checks.shape import Shape

_ADDITIVE = (exp.Sum, exp.Count)
_MAX_MEASURES = 5
_GROUPINGS = (exp.Rollup, exp.Cube, exp.GroupingSets)
# Of sums of doubles, whose order of adding differs between two queries.
_RELATIVE = Decimal("1e-9")


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of the result that adds up to a total."""

    place: int
    """Place of its column, from 0."""
    aggregate: exp.Expr
    digits: int | None
    """Digits to which each row is rounded; None if it is not."""


@dataclass(frozen=True, slots=True)
class TotalsProbe:
    """Query for the totals of a breakdown, and how to compare them."""

    query: exp.Select
    measures: tuple[Measure, ...]
    left_out: tuple[str, ...]
    """Tables whose joins the query leaves out, as only the breakdown needs them."""


def totals_probe(shape: Shape, table: Table) -> TotalsProbe | None:
    """Query for the totals of an additive breakdown; None for others, or if they cannot differ."""
    select = shape.select
    group = select.args.get("group")
    if group is None or group.find(*_GROUPINGS) is not None or group.args.get("totals"):
        return None
    if select.args.get("having") or select.args.get("distinct") or select.args.get("offset"):
        return None
    limit = select.args.get("limit")
    # A top list, whose rows are not all that there are; the guard's own limit is never reached.
    if limit is not None and _limit(limit) == str(len(table.rows)):
        return None
    if select.find(exp.Window) is not None or len(table.columns) != len(select.expressions):
        return None
    found = _measures(select)
    if not found or not table.rows:
        return None
    left_out = _only_for_groups(shape, found)
    if not left_out and not table.truncated:
        # The same rows in groups and without them: they add up by definition.
        return None
    query = shape.probe(
        [exp.alias_(each.aggregate.copy(), f"total_{each.place}") for each in found],
        shape.filters,
        without=left_out,
    )
    return TotalsProbe(query, tuple(found), tuple(shape.tables[each].name for each in left_out))


def reconciliation(probe: TotalsProbe, table: Table, totals: Sequence[object]) -> str:
    """What the totals say of the rows, in one sentence; empty if they add up."""
    for measure, found in zip(probe.measures, totals, strict=False):
        total = _number(found)
        cells = [_number(from_value(row.values[measure.place])) for row in table.rows]
        numbers = [cell for cell in cells if cell is not None]
        if total is None or not numbers:
            continue
        added = sum(numbers, Decimal(0))
        if abs(added - total) <= _tolerance(measure, len(numbers), total):
            continue
        name = table.columns[measure.place].name
        said = f"{name} adds up to {_text(added)} over these rows"
        if table.truncated:
            return f"{said}, and to {_text(total)} over all."
        others = ", ".join(probe.left_out) or "the other tables"
        if abs(added) < abs(total):
            return (
                f"{said}, but to {_text(total)} in total: some rows have no match in {others} and"
                " are left out here."
            )
        return (
            f"{said}, but to {_text(total)} in total: the join with {others} counts some rows more"
            " than once."
        )
    return ""


def _measures(select: exp.Select) -> list[Measure]:
    found = []
    for place, expression in enumerate(select.expressions):
        inner = expression.unalias().unnest()
        digits = None
        if isinstance(inner, exp.Round):
            decimals = inner.args.get("decimals")
            if decimals is not None and not decimals.is_int:
                continue
            digits = int(decimals.name) if decimals is not None else 0
            inner = inner.this.unnest()
        is_distinct = isinstance(inner, _ADDITIVE) and isinstance(inner.this, exp.Distinct)
        if isinstance(inner, _ADDITIVE) and not is_distinct:
            found.append(Measure(place, inner, digits))
    return found[:_MAX_MEASURES]


def _only_for_groups(shape: Shape, measures: Sequence[Measure]) -> list[str]:
    """Joined sources that neither measures nor filters need, nor another join that stays."""
    aliases = list(shape.tables)
    needed = {aliases[0], measured_source(shape)}
    for measure in measures:
        needed |= shape.owners(measure.aggregate)
    for each in shape.filters:
        for condition in each.conditions:
            needed |= shape.owners(condition)
    if "" in needed - {measured_source(shape)}:
        return []
    left_out: list[str] = []
    for alias, join in reversed(list(zip(aliases[1:], shape.joins, strict=True))):
        is_plain = not join.side and bool(join.args.get("on") or join.args.get("using"))
        if alias in needed or not is_plain:
            needed |= shape.owners(join) | {alias}
            if join.args.get("using"):
                needed |= set(aliases)
        else:
            left_out.append(alias)
    return left_out[::-1]


def _limit(limit: exp.Expr) -> str:
    number = limit.args.get("count") or limit.args.get("expression")
    return number.name if isinstance(number, exp.Expr) else ""


def _tolerance(measure: Measure, rows: int, total: Decimal) -> Decimal:
    rounding = Decimal(0)
    if measure.digits is not None:
        rounding = Decimal(rows) * Decimal(10) ** -measure.digits
    return rounding + abs(total) * _RELATIVE


def _number(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _text(number: Decimal) -> str:
    rounded = number.quantize(Decimal("0.01")) if number != number.to_integral() else number
    text = f"{rounded:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
