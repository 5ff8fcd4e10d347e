"""Tables in a step's input: found, bounded, and the one that a question is about. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bos_charts.columns import Column, Kind, make_column, words_of

MAX_COLUMNS = 40
_MAX_TABLES = 50
_ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Table:
    """A table with judged columns."""

    name: str
    """Source: a step, or an argument of the plan."""
    columns: tuple[Column, ...]
    row_count: int

    def column(self, name: str) -> Column | None:
        """Column of that name, case-insensitively; None if there is none."""
        exact = (column for column in self.columns if column.name == name)
        folded = (column for column in self.columns if column.name.lower() == name.lower())
        return next(exact, None) or next(folded, None)


@dataclass(frozen=True, slots=True)
class RawTable:
    """Rows of an input before anything is known of their columns."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    given: bool
    """Whether the plan handed it over by name."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Declared units by column."""

    def judged(self) -> Table:
        """The table with its columns; those without a name or with nested cells are left out."""
        names = list(dict.fromkeys(name for row in self.rows for name in row if name.strip()))
        columns = []
        for name in names:
            cells = [row.get(name) for row in self.rows]
            nested = any(isinstance(cell, Mapping | list | bytes) for cell in cells)
            if not nested and any(cell is not None for cell in cells):
                columns.append(make_column(name, cells, self.units.get(name, "")))
        return Table(self.name, tuple(columns[:MAX_COLUMNS]), len(self.rows))


def raw_tables(
    arguments: Mapping[str, Any], dependencies: Mapping[str, Mapping[str, Any]]
) -> list[RawTable]:
    """Tables of a step's input, those of the plan's arguments first.

    A table is a list of maps; lists of lists beside ``columns``; a map from text to numbers.
    """
    earlier = [
        RawTable(name, rows, False, _units(data))
        for step, data in dependencies.items()
        for name, rows in _tables(step, data)
    ]
    found = []
    for name, rows in _tables("", arguments):
        # The plan hands over rows alone; their units stand beside them in the step's output.
        units = next((each.units for each in earlier if each.rows == rows), {})
        found.append(RawTable(name, rows, True, units))
    known = [table.rows for table in found]
    return [*found, *(table for table in earlier if table.rows not in known)][:_MAX_TABLES]


def raw_dumps(dependencies: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Rows by step that are single records cut at a limit: a chart of them would be of any part.

    Agents that query say so in ``execution_stats``: ``truncated``, and not ``aggregated``.
    """
    dumps = {}
    for step, data in dependencies.items():
        stats = data.get("execution_stats")
        if not isinstance(stats, Mapping) or stats.get("aggregated") is not False:
            continue
        if stats.get("truncated") is True:
            dumps[step] = data.get(_ROWS)
    return dumps


def best_table(tables: Sequence[Table], question: str) -> Table:
    """The table that fits the question best by the words of its name and columns; else the last.

    A table that can be drawn at all comes before one that cannot.
    """
    asked = words_of(question)

    def score(position: int) -> tuple[bool, int, int]:
        table = tables[position]
        names = words_of(table.name).union(*(words_of(column.name) for column in table.columns))
        drawable = any(column.kind is Kind.NUMBER for column in table.columns)
        return drawable and table.row_count > 1, _matches(names, asked), position

    return tables[max(range(len(tables)), key=score)]


def mentions(question: str, column: Column) -> int:
    """How many words of the column's name stand in the question."""
    return _matches(words_of(column.name), words_of(question))


def _matches(names: set[str], asked: set[str]) -> int:
    stems = {word.rstrip("s") for word in asked if len(word) > 2}
    return len({word.rstrip("s") for word in names if len(word) > 2} & stems)


def _units(data: Mapping[str, Any]) -> Mapping[str, str]:
    units = data.get("units")
    return units if isinstance(units, Mapping) else {}


def _tables(name: str, data: Mapping[str, Any]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Tables in one map and in the maps directly inside it."""
    columns = data.get("columns")
    for key, value in data.items():
        label = name if key == _ROWS and name else f"{name}.{key}".strip(".")
        if rows := _rows(value, columns):
            yield label, rows
        elif isinstance(value, Mapping):
            if pairs := _pairs(value):
                yield label, pairs
            for inner, part in value.items():
                if rows := _rows(part, value.get("columns")):
                    yield label if inner == _ROWS else f"{label}.{inner}", rows


def _rows(value: Any, columns: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not value:
        return []
    if all(isinstance(row, Mapping) for row in value):
        return value if any(value) else []
    named = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
    if named and all(isinstance(row, list) and len(row) == len(columns) for row in value):
        return [dict(zip(columns, row, strict=True)) for row in value]
    return []


def _pairs(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A map from names to numbers as a table of two columns."""
    column = make_column("value", list(value.values()))
    if len(value) < 2 or column.kind is not Kind.NUMBER or None in value.values():
        return []
    return [{"name": name, "value": number} for name, number in value.items()]
