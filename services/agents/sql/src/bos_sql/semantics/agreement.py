"""Whether a query computes a named metric as it is defined, judged on its syntax tree.

A query agrees if the formula stands in its result (or orders or restricts it), over rows that meet
the metric's filters, and if nothing else narrows or splits these rows than the metric's dimensions
and its time column. Where a result column bears the metric's name, that one is judged and no other;
else one of them has to agree. Beside a period of the metric's own, other dates may narrow it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_sql.dialects.kinds import declared_kind
from bos_sql.dialects.reading import Unreadable, read_query
from bos_sql.semantics.definition import Definition, NotDefined, define
from bos_sql.semantics.expressions import TooLong
from bos_sql.semantics.lineage import Lineage, Untraceable
from bos_sql.semantics.naming import phrase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bos_sql.grounding.catalog import Catalog, Field, Metric
    from bos_sql.semantics.expressions import Column, Filter
    from bos_sql.semantics.lineage import Output
    from bos_sqlguard import Dialect


def disagreement(sql: str, dialect: Dialect, metric: Metric, catalog: Catalog) -> str:
    """How the query differs from the definition of ``metric``; empty if it agrees.

    A query that computes one of the metric's alternatives as that is defined agrees, too.
    """
    try:
        outputs = Lineage(read_query(sql, dialect), catalog).outputs()
    except (Unreadable, Untraceable, TooLong):
        return f"it cannot be seen whether the query computes {metric.name}; write it more plainly"
    first = ""
    for each in (metric, *_alternatives(metric, catalog)):
        try:
            defined = define(each, catalog, dialect)
        except NotDefined as failure:
            problem = f"{each.name}: {failure}"
        else:
            problem = next(_Judge(each, defined, catalog).problems(outputs, metric), "")
        if not problem:
            return ""
        first = first or problem
    return first


def _alternatives(metric: Metric, catalog: Catalog) -> Iterable[Metric]:
    wanted = frozenset(metric.alternatives)
    return (each for each in catalog.metrics if each.name in wanted)


class _Judge:
    def __init__(self, metric: Metric, defined: Definition, catalog: Catalog) -> None:
        self._metric = metric
        self._defined = defined
        self._catalog = catalog
        self._time = metric.time.casefold()
        self._dimensions = frozenset(each.casefold() for each in metric.dimensions)

    def problems(self, outputs: Sequence[Output], named: Metric) -> Iterator[str]:
        """Problems of the query; the first one is worth saying."""
        names = {phrase(name) for name in (named.name, *named.synonyms)}
        bearing = [output for output in outputs if phrase(output.alias) in names]
        if not any(use for output in outputs for use in self._uses(output)):
            yield f"its result does not hold {self._metric.formula}"
        for output in bearing:
            if not any(self._uses(output)):
                yield f"its column {output.alias} is not {self._metric.formula}"
        uses = [use for output in bearing or outputs for use in self._uses(output)]
        problems = [list(self._rows_differ(filters, groups)) for filters, groups in uses]
        if bearing or all(problems):
            yield from (problem for found in problems for problem in found)

    def _uses(self, output: Output) -> Iterator[tuple[frozenset[Filter], frozenset[Column]]]:
        """Conditions and groups of the rows over which the formula stands in ``output``."""
        for part in output.normal.all_parts():
            if part.text == self._defined.formula:
                yield part.filters, part.groups
            elif output.is_per_row and self._defined.per_row == part.text:
                yield output.rows.filters, output.rows.groups

    def _rows_differ(self, filters: frozenset[Filter], groups: frozenset[Column]) -> Iterator[str]:
        own = {each.text for each in self._defined.filters}
        if missing := own - {each.text for each in filters}:
            texts = self._metric.filters or tuple(sorted(missing))
            yield f"it leaves out a condition that belongs to it: {' AND '.join(texts)}"
        columns = {f"{table}.{name}" for each in filters for table, name in each.columns}
        has_period = self._time in columns
        for each in sorted(filters, key=lambda each: each.text):
            if has_period and all(self._is_date(*column) for column in each.columns):
                continue
            if each.text not in own:
                yield from self._strange(each.columns, "restricts", is_null_test=each.is_null_test)
        yield from self._strange(groups, "splits")

    def _strange(
        self, columns: Iterable[Column], verb: str, *, is_null_test: bool = False
    ) -> Iterator[str]:
        for table, name in sorted(columns):
            column = f"{table}.{name}"
            if column == self._time or self._is_dimension(table, name):
                continue
            if self._time and not is_null_test and self._is_date(table, name):
                yield f"its period is taken from {column} instead of {self._metric.time}"
            if self._dimensions:
                yield f"it {verb} it by {column}, which is none of its dimensions"

    def _is_dimension(self, table: str, name: str) -> bool:
        """Whether it is a dimension, belongs to one, or is a key that leads to one."""
        if {table, f"{table}.{name}"} & self._dimensions:
            return True
        of = {each.rpartition(".")[0] for each in self._dimensions} | self._dimensions
        field = self._field(table, name)
        if field is not None and field.key == "primary key" and table in of:
            return True
        return any(
            join.table.casefold() == table
            and name in {each.casefold() for each in join.columns}
            and join.other.casefold() in of
            for join in self._catalog.joins
        )

    def _is_date(self, table: str, name: str) -> bool:
        field = self._field(table, name)
        return field is not None and declared_kind(field.type) in ("date", "moment")

    def _field(self, table: str, name: str) -> Field | None:
        for each in self._catalog.tables:
            if each.name.casefold() == table:
                return next((f for f in each.fields if f.name.casefold() == name), None)
        return None
