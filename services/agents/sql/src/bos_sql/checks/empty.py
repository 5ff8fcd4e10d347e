"""Empty results explained: which filter removed all rows, by asking without one at a time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from bos.common.v1 import Table
from bos_sql.checks.shape import Filter, Shape

_MAX_VALUES = 5
_MAX_VALUE_CHARS = 30
_ZEROS = frozenset({"0", "0.0"})


@dataclass(frozen=True, slots=True)
class Probe:
    """A query for one row, with some of the filters."""

    query: exp.Select
    without: Filter | None
    """The one filter that is left out; None: all of them, or what follows the filters."""
    is_grouped: bool = False
    """Whether all filters are kept, and only HAVING is left out."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A probe, and whether it found a row."""

    probe: Probe
    has_rows: bool


def is_empty(table: Table) -> bool:
    """Whether a result has no rows, or one row of zeros and empty cells."""
    if not table.rows:
        return True
    return len(table.rows) == 1 and all(
        cell.WhichOneof("kind") in (None, "null_value")
        or (cell.WhichOneof("kind") == "int64_value" and cell.int64_value == 0)
        or cell.decimal_value in _ZEROS
        for cell in table.rows[0].values
    )


def empty_probes(shape: Shape, most: int) -> list[Probe]:
    """At most ``most`` probes: without HAVING, without any filter, then without one at a time.

    Of a part of a query, of which is known that it is empty, those without one come first: other
    parts have had their probes.
    """
    filters = shape.filters
    having = shape.select.args.get("having") is not None
    probes = [Probe(any_row(shape, filters), None, is_grouped=True)] if having else []
    bare = [Probe(any_row(shape, ()), None)] if filters else []
    single = [
        Probe(any_row(shape, [each for each in filters if each is not left_out]), left_out)
        for left_out in (filters if len(filters) > 1 else ())
    ]
    probes += [*single, *bare] if shape.part else [*bare, *single]
    return probes[:most]


def is_settled(finding: Finding) -> bool:
    """Whether no further probe can say more."""
    if finding.probe.is_grouped:
        return finding.has_rows
    return finding.probe.without is None and not finding.has_rows


def explanation(shape: Shape, findings: Sequence[Finding], *, is_stated: bool = False) -> str:
    """What removed all rows, in one sentence or two; empty if the findings do not say.

    Args:
        shape: The query.
        findings: What its probes found.
        is_stated: Whether the answer states all filters anyway, so that one alone needs no words.
    """
    names = ", ".join(dict.fromkeys(table.name for table in shape.tables.values()))
    filters = shape.filters
    for finding in findings:
        if finding.probe.is_grouped and finding.has_rows:
            return "Rows match the filters, but no group fulfils the condition on groups (HAVING)."
        if finding.probe.without is None and not finding.probe.is_grouped:
            if not finding.has_rows:
                # Conditions of joins are kept in the probe, so that no table is known to be empty.
                if len(shape.tables) > 1:
                    return (
                        "Without any filter in WHERE there are no rows either: no rows of"
                        f" {names} meet the conditions of the join."
                    )
                return f"Without any filter there are no rows either: {names} has none."
            if len(filters) == 1:
                values = _known_values(shape, filters[0])
                if is_stated and not values:
                    return ""
                return (
                    f"The filter {_quoted(shape, filters[0])} removes all rows of {names}.{values}"
                )
    single = [f.probe.without for f in findings if f.probe.without is not None and f.has_rows]
    asked = sum(finding.probe.without is not None for finding in findings)
    if len(single) == 1:
        return (
            f"The filter {_quoted(shape, single[0])} removes all rows: without it there would be"
            f" some.{_known_values(shape, single[0])}"
        )
    if single:
        listed = " and ".join(_quoted(shape, each) for each in single)
        return (
            f"The filters {listed} match no row together: without one of them there would be some."
        )
    if asked and asked == len(filters):
        return "No single filter removes all rows, but several of them together do."
    return ""


def lies_deeper(findings: Sequence[Finding]) -> bool:
    """Whether there are no rows even without filters, so that only a part can say why."""
    return any(each.probe.without is None and not each.has_rows for each in findings[-1:])


def any_row(shape: Shape, filters: Sequence[Filter]) -> exp.Select:
    """Query for one row before grouping, if there is any with these filters."""
    found = exp.alias_(exp.Literal.number(1), "found")
    return shape.probe([found], filters).limit(1)


def _known_values(shape: Shape, each: Filter) -> str:
    """Frequent values of a column that is compared with a text, as a sentence; empty without."""
    if len(each.conditions) != 1 or not isinstance(each.conditions[0], exp.EQ):
        return ""
    column, value = each.conditions[0].left, each.conditions[0].right
    if not isinstance(column, exp.Column) or not (
        isinstance(value, exp.Literal) and value.is_string
    ):
        return ""
    table = shape.tables.get(shape.owner(column))
    fields = table.fields if table is not None else ()
    values = next(
        (field.values for field in fields if field.name.casefold() == column.name.casefold()), ()
    )
    shown = [text for text in values if len(text) <= _MAX_VALUE_CHARS][:_MAX_VALUES]
    return f" Values of {column.name} are, for example, {', '.join(shown)}." if shown else ""


def _quoted(shape: Shape, each: Filter) -> str:
    return f"“{each.text(shape.dialect)}”"
