"""Whether a query computes a named metric as it is defined, judged on its syntax tree.

A query agrees if the formula stands in its result (or orders or restricts it), over rows that meet
the metric's filters, and if nothing else narrows or splits these rows than the metric's dimensions
and its time column. Where a result column bears the metric's name, that one is judged and no other;
else each that holds the formula. Beside a period of the metric's own, other dates may narrow it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_sql.dialects.reading import Unreadable, read_query
from bos_sql.semantics.definition import Definition, NotDefined, define
from bos_sql.semantics.expressions import TooLong
from bos_sql.semantics.fields import Fields
from bos_sql.semantics.lineage import Lineage, Untraceable
from bos_sql.semantics.naming import phrase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bos_sql.grounding.catalog import Catalog, Metric
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
        self._fields = Fields(catalog)
        self._time = metric.time.casefold()
        self._dimensions = frozenset(each.casefold() for each in metric.dimensions)

    def problems(self, outputs: Sequence[Output], named: Metric) -> Iterator[str]:
        """Problems of the query; the first one is worth saying."""
        names = {phrase(name) for name in (named.name, *named.synonyms)}
        shown = [each for each in outputs if each.is_shown]
        bearing = [each for each in shown if phrase(each.alias) in names]
        # What orders or restricts the rows stands for the metric where no other aggregate is shown.
        if not any(each.normal.has_aggregate and each.normal.columns for each in shown):
            shown = [*outputs]
        if not any(use for output in shown for use in self._uses(output)):
            yield f"its result does not hold {self._metric.formula}"
        for output in bearing:
            if not any(self._uses(output)):
                yield f"its column {output.alias} is not {self._metric.formula}"
        found = [differ for each in bearing or shown if (differ := self._differ(each))]
        wrong = [each for each in found if (any if bearing else all)(each)]
        if wrong and not bearing and len(wrong) < len(found):
            yield f"several columns hold it: name the one that is {named.name} so"
        yield from (problem for uses in wrong for problems in uses for problem in problems)

    def _differ(self, output: Output) -> list[list[str]]:
        """Of each place where the formula stands in ``output``: how its rows differ."""
        return [list(self._rows_differ(*use)) for use in self._uses(output)]

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
        has_period = any(
            not each.is_null_test
            and {f"{table}.{name}" for table, name in each.columns} == {self._time}
            for each in filters
        )
        for each in sorted(filters, key=lambda each: each.text):
            is_period = not each.is_null_test and all(map(self._fields.is_date, each.columns))
            if has_period and is_period:
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
            if self._time and not is_null_test and self._fields.is_date((table, name)):
                yield f"its period is taken from {column} instead of {self._metric.time}"
            if self._dimensions:
                yield f"it {verb} it by {column}, which is none of its dimensions"

    def _is_dimension(self, table: str, name: str) -> bool:
        """Whether it is a dimension, belongs to one, or is a key that leads to one."""
        if {table, f"{table}.{name}"} & self._dimensions:
            return True
        of = {each.rpartition(".")[0] for each in self._dimensions} | self._dimensions
        field = self._fields.get((table, name))
        if field is not None and field.key == "primary key" and table in of:
            return True
        return any(
            join.table.casefold() == table
            and name in {each.casefold() for each in join.columns}
            and join.other.casefold() in of
            for join in self._catalog.joins
        )
