"""Types of columns of text, by every cell: exact numbers, dates, truth values, or text.

A column has a type if all its cells that are not blank are written as one. Numbers with leading
zeros stay text, as numbers of articles and postal codes do, and so does what can be read in two
ways.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from duckdb import DuckDBPyConnection

_DIGITS: Final = 38
_SCALE: Final = 12
_AT_ONCE: Final = 50
_SAMPLE_ROWS: Final = 1_000
# Of the cell without blanks around it.
_INTEGER: Final = r"[+-]?(0|[1-9][0-9]{0,17})"
_DECIMAL: Final = r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?"
_DOUBLE: Final = r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?"
# 1,234.50 and 1.234,50: only where one of the signs cannot be the other.
_COMMAS: Final = r"[+-]?(0|[1-9][0-9]{0,2}(,[0-9]{3})+|[1-9][0-9]*)\.[0-9]+"
_POINTS: Final = r"[+-]?(0|[1-9][0-9]{0,2}(\.[0-9]{3})+|[1-9][0-9]*),([0-9]{1,2}|[0-9]{4,})"
_DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_POINTED_DATE: Final = r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{4}"
_TIME: Final = r"[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_TIMESTAMP: Final = f"{_DATE}({_TIME})?"
_TRUTH: Final = r"(?i)true|false"

_READ_POINTED_DATE: Final = "CAST(try_strptime({cell}, '%d.%m.%Y') AS DATE)"
_SHAPES: Final = {
    "truth": (_TRUTH, ""),
    "integer": (_INTEGER, ""),
    "decimal": (_DECIMAL, ""),
    "double": (_DOUBLE, " AND NOT regexp_matches({cell}, '^[+-]?0[0-9]')"),
    "commas": (_COMMAS, ""),
    "points": (_POINTS, ""),
    "date": (_DATE, " AND try_cast({cell} AS DATE) IS NOT NULL"),
    "pointed_date": (_POINTED_DATE, f" AND {_READ_POINTED_DATE} IS NOT NULL"),
    "timestamp": (_TIMESTAMP, " AND try_cast({cell} AS TIMESTAMP) IS NOT NULL"),
}
"""Formats of cells: a pattern of the whole cell, and further conditions."""
_NUMBERS: Final = frozenset({"decimal", "commas", "points"})
_NO_COMMAS: Final = "replace({cell}, ',', '')"
_NO_POINTS: Final = "replace(replace({cell}, '.', ''), ',', '.')"


def make_typed(
    connection: DuckDBPyConnection, source: str, target: str, names: Sequence[str]
) -> None:
    """Make ``target`` of ``source``, a table of text columns c1, c2, …: named, and with types.

    Cells that are blank become NULL. What the first rows rule out is not looked for in all of them.
    """
    reads = []
    sample = f"(SELECT * FROM {quoted(source)} LIMIT {_SAMPLE_ROWS})"  # noqa: S608 - names are quoted
    for start in range(1, len(names) + 1, _AT_ONCE):
        columns = [f"c{place}" for place in range(start, min(start + _AT_ONCE, len(names) + 1))]
        possible = _found(connection, sample, {column: list(_SHAPES) for column in columns})
        wanted = {
            column: [shape for shape in _SHAPES if possible[column][shape] is not False]
            for column in columns
        }
        found = _found(connection, quoted(source), wanted)
        reads += [_read(column, found[column]) for column in columns]
    listed = ", ".join(f"{read} AS {quoted(name)}" for read, name in zip(reads, names, strict=True))
    made = f"SELECT {listed} FROM {quoted(source)}"  # noqa: S608
    connection.execute(f"CREATE TABLE {quoted(target)} AS {made}")


def quoted(name: str) -> str:
    """Return ``name`` as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def _found(
    connection: DuckDBPyConnection, source: str, wanted: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, Any]]:
    """Which of the wanted shapes all cells of each column have, and how many digits there are.

    A shape is None if the column has no cells, and False for one that was not wanted.
    """
    looks = [(column, *look) for column in wanted for look in _looks(column, wanted[column])]
    listed = ", ".join(look for *_, look in looks)
    asked = connection.execute(f"SELECT {listed} FROM {source}").fetchone()  # noqa: S608
    found: dict[str, dict[str, Any]] = {column: dict.fromkeys(_SHAPES, False) for column in wanted}
    for (column, name, _), answer in zip(looks, asked or (), strict=True):
        found[column][name] = answer
    return found


def _looks(column: str, shapes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Queries about a column: names and expressions."""
    cell = _cell(column)
    yield "cells", f"count({cell})"
    for shape in shapes:
        pattern, besides = _SHAPES[shape]
        test = f"regexp_full_match({cell}, '{pattern}'){besides.format(cell=cell)}"
        yield shape, f"bool_and({test}) FILTER (WHERE {cell} IS NOT NULL)"
    if _NUMBERS.intersection(shapes):
        yield "whole", f"max({_digits(cell, '^[+-]?([0-9]+)')})"
        yield "scale", f"max({_digits(cell, '[.,]([0-9]+)$')})"
        yield "digits", f"max(length(regexp_replace({cell}, '[^0-9]', '', 'g')))"


def _read(column: str, found: Mapping[str, Any]) -> str:
    """The expression that reads a column, by what was found of its cells."""
    cell = _cell(column)
    if not found["cells"]:
        return "CAST(NULL AS VARCHAR)"
    if found["truth"]:
        return f"lower({cell}) = 'true'"
    if found["integer"]:
        return f"CAST({cell} AS BIGINT)"
    scale = _number(found.get("scale"))
    if found["decimal"]:
        exact = _exact(_number(found.get("whole")), scale)
    else:
        exact = _exact(_number(found.get("digits")), scale)
    if found["decimal"] and exact:
        return f"CAST({cell} AS {exact})"
    if found["commas"] and exact:
        return f"CAST({_NO_COMMAS.format(cell=cell)} AS {exact})"
    if found["points"] and exact:
        return f"CAST({_NO_POINTS.format(cell=cell)} AS {exact})"
    if found["double"]:
        return f"CAST({cell} AS DOUBLE)"
    if found["date"]:
        return f"CAST({cell} AS DATE)"
    if found["pointed_date"]:
        return _READ_POINTED_DATE.format(cell=cell)
    if found["timestamp"]:
        return f"CAST({cell} AS TIMESTAMP)"
    return f"nullif({column}, '')"


def _exact(whole: int, scale: int) -> str:
    """The exact type of numbers with so many digits; empty if there is none."""
    if whole + scale > _DIGITS or scale > _SCALE:
        return ""
    # Sums of many of them fit too: DuckDB adds in 38 digits.
    return f"DECIMAL({max(18, whole + scale)}, {scale})"


def _number(found: object) -> int:
    return found if isinstance(found, int) else 0


def _digits(cell: str, pattern: str) -> str:
    return f"length(regexp_extract({cell}, '{pattern}', 1))"


def _cell(column: str) -> str:
    return f"nullif(trim({column}), '')"
