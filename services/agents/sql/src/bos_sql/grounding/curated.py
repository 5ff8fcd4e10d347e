"""Curated metadata of a database: a YAML file, strictly parsed.

::

    tables:
      invoices:
        description: Sales invoices
        synonyms: [bills]
        questions: ["Who owes us money?"]
        fields:
          net_amount: {description: Without tax, synonyms: [revenue], unit: EUR}
    metrics:
      revenue:
        formula: SUM(invoices.net_amount)
        filters: [invoices.status <> 'void']
        time: invoices.invoice_date
        dimensions: [customers, regions.region_name]
        synonyms: [turnover]
    joins:
      - {on: customers.account_manager_id = employees.employee_id, description: …}

A description replaces the database's comment; everything else is added. A unit is an ISO 4217 code,
``money`` (of the deployment's currency), ``%`` or another unit such as ``kg``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bos_errors import ConfigurationError
from bos_sql.grounding.catalog import Catalog, Join, Metric, Table, one_line
from bos_sql.semantics.definition import NotDefined, require_defined
from bos_sql.semantics.naming import contested_name

SETTING = "BOS_SQL_METADATA_PATH"
_MAX_BYTES = 1_000_000
_TEXT_LITERAL = re.compile(r"'(?:[^']|'')*'")
_REFERENCE = re.compile(r"(?<![\w.])([^\W\d][\w.]*)\.([^\W\d]\w*)")
_EQUALITY = re.compile(r"\s*([\w.]+)\.(\w+)\s*=\s*([\w.]+)\.(\w+)\s*")

T = TypeVar("T")

Place = tuple[str | int, ...]
"""Path of keys and positions to an entry of the file."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    description: str = Field(default="", max_length=1_000)


_Condition = Annotated[str, Field(min_length=1, max_length=1_000)]


class _Named(_Entry):
    synonyms: list[str] = Field(default=[], max_length=50)


class CuratedField(_Named):
    """Curated metadata of a column."""

    unit: str = Field(default="", max_length=20)


class CuratedTable(_Named):
    """Curated metadata of a table."""

    questions: list[str] = Field(default=[], max_length=50)
    fields: dict[str, CuratedField] = Field(default={})


class CuratedMetric(_Named):
    """A curated metric; its formula names every field as ``table.field``."""

    formula: str = Field(min_length=1, max_length=1_000)
    questions: list[str] = Field(default=[], max_length=50)
    filters: list[_Condition] = Field(default=[], max_length=20)
    time: str = Field(default="", max_length=200)
    dimensions: list[str] = Field(default=[], max_length=100)
    alternatives: list[str] = Field(default=[], max_length=20)
    enforced: Literal["true", "false"] = "true"


class CuratedJoin(_Entry):
    """A curated join of two tables: ``a.x = b.y``, several combined by AND."""

    on: str


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tables: dict[str, CuratedTable] = Field(default={})
    metrics: dict[str, CuratedMetric] = Field(default={})
    joins: list[CuratedJoin] = Field(default=[])


@dataclass(frozen=True, slots=True)
class Curated:
    """A parsed curated file; :meth:`applied_to` checks it against a database."""

    content: _File
    lines: Mapping[Place, int]

    def applied_to(self, catalog: Catalog) -> Catalog:
        """``catalog`` with the curated metadata.

        For a narrowed catalogue, entries about other tables are skipped, because those may be
        tables that the user may not read.

        Raises:
            ConfigurationError: the file names an unknown table or field; names the line.
        """
        known = {table.name: table for table in catalog.tables}
        if catalog.narrowed:
            return self._within(known).applied_to(replace(catalog, narrowed=False))
        for name in self.content.tables:
            self._known(known, name, "table", ("tables", name))
        return replace(
            catalog,
            tables=tuple(self._table(table) for table in catalog.tables),
            # Curated joins come first, because paths take the first join of two tables.
            joins=(*self._joins(known), *catalog.joins),
            metrics=self._metrics(catalog),
        )

    def _within(self, known: Mapping[str, Table]) -> Curated:
        """The entries that concern only these tables and fields."""
        fields = {
            f"{table.name}.{field.name}" for table in known.values() for field in table.fields
        }

        def is_whole(text: str) -> bool:
            named = _REFERENCE.findall(_TEXT_LITERAL.sub("''", text))
            return all(f"{table}.{field}" in fields for table, field in named)

        def is_readable(metric: CuratedMetric) -> bool:
            """Whether all its fields may be read: a metric in part would be another one."""
            dimensions = [each for each in metric.dimensions if each not in known]
            named = [metric.time, *dimensions] if metric.time else dimensions
            return all(map(is_whole, (metric.formula, *metric.filters))) and fields.issuperset(
                named
            )

        content, lines = self.content, dict(self.lines)
        joins = [(number, join) for number, join in enumerate(content.joins) if is_whole(join.on)]
        for place, (number, _) in enumerate(joins):
            lines[("joins", place, "on")] = _line(self.lines, ("joins", number, "on"))
        kept = {
            "tables": {
                name: table.model_copy(
                    update={
                        "fields": {
                            field: added
                            for field, added in table.fields.items()
                            if f"{name}.{field}" in fields
                        }
                    }
                )
                for name, table in content.tables.items()
                if name in known
            },
            "metrics": {
                name: metric.model_copy(
                    update={
                        "alternatives": [
                            each
                            for each in metric.alternatives
                            if each in content.metrics and is_readable(content.metrics[each])
                        ]
                    }
                )
                for name, metric in content.metrics.items()
                if is_readable(metric)
            },
            "joins": [join for _, join in joins],
        }
        return replace(self, content=content.model_copy(update=kept), lines=lines)

    def _table(self, table: Table) -> Table:
        curated = self.content.tables.get(table.name)
        if curated is None:
            return table
        fields = {field.name: field for field in table.fields}
        for name, added in curated.fields.items():
            place: Place = ("tables", table.name, "fields", name)
            field = self._known(fields, name, f"field of {table.name}", place)
            fields[name] = replace(
                field,
                comment=one_line(added.description) or field.comment,
                synonyms=tuple(added.synonyms),
                unit=one_line(added.unit),
            )
        return replace(
            table,
            fields=tuple(fields.values()),
            comment=one_line(curated.description) or table.comment,
            synonyms=tuple(curated.synonyms),
            questions=tuple(curated.questions),
        )

    def _joins(self, known: Mapping[str, Table]) -> Iterable[Join]:
        for number, curated in enumerate(self.content.joins):
            place: Place = ("joins", number, "on")
            parts = [_EQUALITY.fullmatch(each) for each in re.split(r"\sAND\s", curated.on)]
            sides = [part.groups() for part in parts if part]
            pairs = {(side[0], side[2]) for side in sides}
            if not all(parts) or len(pairs) != 1:
                raise self._error(place, "write a.x = b.y, several of the same tables with AND")
            ((table, other),) = pairs
            for own, column, others, other_column in sides:
                self._field(known, own, column, place)
                self._field(known, others, other_column, place)
            yield Join(
                table,
                tuple(side[1] for side in sides),
                other,
                tuple(side[3] for side in sides),
                one_line(curated.description),
            )

    def _metrics(self, catalog: Catalog) -> tuple[Metric, ...]:
        known = {table.name: table for table in catalog.tables}
        found = tuple(
            self._metric(known, name, curated) for name, curated in self.content.metrics.items()
        )
        self._check(found, catalog)
        return found

    def _metric(self, known: Mapping[str, Table], name: str, curated: CuratedMetric) -> Metric:
        place: Place = ("metrics", name)
        tables = list(self._named_tables(known, curated.formula, (*place, "formula")))
        if not tables:
            raise self._error(
                (*place, "formula"), "the formula names no field; write fields as table.field"
            )
        for number, condition in enumerate(curated.filters):
            tables += self._named_tables(known, condition, (*place, "filters", number))
        if curated.time:
            table, _, column = curated.time.rpartition(".")
            self._field(known, table, column, (*place, "time"))
        for number, dimension in enumerate(curated.dimensions):
            table, _, column = dimension.rpartition(".")
            if dimension not in known:
                self._field(known, table, column, (*place, "dimensions", number))
        return Metric(
            name=name,
            formula=one_line(curated.formula),
            tables=tuple(dict.fromkeys(tables)),
            description=one_line(curated.description),
            synonyms=tuple(curated.synonyms),
            questions=tuple(curated.questions),
            filters=tuple(map(one_line, curated.filters)),
            time=curated.time,
            dimensions=tuple(curated.dimensions),
            alternatives=tuple(curated.alternatives),
            enforced=curated.enforced == "true",
        )

    def _named_tables(self, known: Mapping[str, Table], text: str, place: Place) -> Iterable[str]:
        for table, field in _REFERENCE.findall(_TEXT_LITERAL.sub("''", text)):
            self._field(known, table, field, place)
            yield table

    def _check(self, metrics: Sequence[Metric], catalog: Catalog) -> None:
        """Check what queries are compared with."""
        names = {metric.name: metric for metric in metrics}
        if (contested := contested_name(metrics)) is not None:
            metric, name = contested
            raise self._error(("metrics", metric.name), f"another metric is called {name!r}, too")
        for metric in metrics:
            for number, other in enumerate(metric.alternatives):
                place: Place = ("metrics", metric.name, "alternatives", number)
                self._known(names, other, "metric", place)
            if not metric.enforced:
                continue
            try:
                require_defined(metric, catalog)
            except NotDefined as failure:
                problem = f"{failure}; or set enforced: false, which makes it a mere hint"
                raise self._error(("metrics", metric.name), problem) from failure

    def _field(self, known: Mapping[str, Table], table: str, field: str, place: Place) -> None:
        fields = {each.name: each for each in self._known(known, table, "table", place).fields}
        self._known(fields, field, f"field of {table}", place)

    def _known(self, known: Mapping[str, T], name: str, kind: str, place: Place) -> T:
        if name in known:
            return known[name]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise self._error(place, f"there is no {kind} {name!r}{hint}")

    def _error(self, place: Place, problem: str) -> ConfigurationError:
        return _error(_line(self.lines, place), problem)


def read_curated(path: Path) -> Curated:
    """Read and parse the file at ``path``.

    Raises:
        ConfigurationError: it cannot be read, or its shape is invalid; names the line.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigurationError(f"{SETTING}: the file is larger than {_MAX_BYTES} bytes.")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{SETTING}: {path} cannot be read ({type(error).__name__}). "
            "Correct the path, or unset it."
        ) from error
    return parse_curated(text)


def parse_curated(text: str) -> Curated:
    """Parse the text of a curated file, as :func:`read_curated`."""
    lines: dict[Place, int] = {}
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = {} if node is None else _built(node, (), lines)
        return Curated(_File.model_validate(content), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise _error(0 if mark is None else mark.line + 1, error.problem or "no YAML") from error
    except yaml.YAMLError as error:
        raise _error(0, "the file is no YAML") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place: Place = first["loc"]
        name = ".".join(str(part) for part in place)
        raise _error(_line(lines, place), f"{name}: {first['msg']}") from error


def _built(node: yaml.Node, place: Place, lines: dict[Place, int]) -> Any:
    """Value of ``node``; records the line of every entry and refuses duplicate keys."""
    lines[place] = node.start_mark.line + 1
    if len(place) > 8:  # deeper than any entry; a recursive alias would not terminate
        raise _error(lines[place], "too deeply nested")
    if isinstance(node, yaml.MappingNode):
        values: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = _scalar(key_node)
            if key in values:
                raise _error(key_node.start_mark.line + 1, f"{key!r} is given twice")
            values[key] = _built(value_node, (*place, str(key)), lines)
            lines[(*place, str(key))] = key_node.start_mark.line + 1
        return values
    if isinstance(node, yaml.SequenceNode):
        return [_built(each, (*place, number), lines) for number, each in enumerate(node.value)]
    return _scalar(node)


def _scalar(node: yaml.Node) -> str:
    """Scalar as text: YAML would parse the key ``on`` as true, and a table ``1`` as a number."""
    if not isinstance(node, yaml.ScalarNode):
        raise _error(node.start_mark.line + 1, "a name was expected")
    return str(node.value)


def _line(lines: Mapping[Place, int], place: Place) -> int:
    """Line of ``place``, or of the nearest enclosing entry."""
    while place not in lines:
        place = place[:-1]
    return lines[place]


def _error(line: int, problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"The metadata file of {SETTING}, line {line}: {one_line(problem)}. Correct the file."
    )
