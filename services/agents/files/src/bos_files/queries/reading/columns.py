"""Types of columns of text, by every cell: exact numbers, dates, truth values, or text.

A column has a type if all its cells that are not blank are written as one. Numbers with leading
zeros stay text, as numbers of articles and postal codes do, and so does what can be read in two
ways. How a number is written is decided for each column, and in doubt by the other columns.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from bos_files.queries.reading.formats import (
    MEASURES,
    PATTERNS,
    READS,
    SHAPES,
    STYLES,
    note_of,
    read_number,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from duckdb import DuckDBPyConnection

_MOST_DIGITS: Final = 38
_SCALE: Final = 12
_AT_ONCE: Final = 50
_SAMPLE_ROWS: Final = 1_000
_MOST_NOTES: Final = 20
_STYLED: Final = frozenset({*STYLES, "pointed_date", "day_first", "month_first", "duration"})
_MEASURED: Final = _STYLED | {"decimal"}


def make_typed(
    connection: DuckDBPyConnection,
    source: str,
    target: str,
    names: Sequence[str],
) -> list[str]:
    """Make ``target`` of ``source``, a table of text columns c1, c2, …: named, and with types.

    Cells that are blank become NULL. What the first rows rule out is not looked for in all of them.

    Returns:
        Notes on columns whose reading is in doubt, or whose unit is no longer in the cells.
    """
    found: dict[str, dict[str, Any]] = {}
    possible = _possible(connection, source, len(names))
    for start in range(1, len(names) + 1, _AT_ONCE):
        columns = [f"c{place}" for place in range(start, min(start + _AT_ONCE, len(names) + 1))]
        likely = {column: _likely(possible[column]) for column in columns}
        found |= _found(connection, quoted(source), likely)
        # What the first rows made likely, and a later one rules out.
        again = {
            column: possible[column]
            for column in columns
            if possible[column] != likely[column]
            and not any(found[column][shape] for shape in likely[column])
        }
        found |= _found(connection, quoted(source), again) if again else {}
    style = _style(found.values())
    reads, notes = [], []
    for (column, shapes), name in zip(found.items(), names, strict=True):
        shape = _shape(shapes, style)
        reads.append(f"{_read(column, shape, shapes)} AS {quoted(name)}")
        if note := note_of(name, shape, shapes):
            notes.append(note)
    made = f"SELECT {', '.join(reads)} FROM {quoted(source)}"  # noqa: S608
    connection.execute(f"CREATE TABLE {quoted(target)} AS {made}")
    return notes[:_MOST_NOTES]


def quoted(name: str) -> str:
    """Return ``name`` as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def _possible(connection: DuckDBPyConnection, source: str, width: int) -> dict[str, list[str]]:
    """Shapes that the cells of the first rows have, by column."""
    listed = ", ".join(_cell(f"c{place}") for place in range(1, width + 1))
    rows = connection.execute(
        f"SELECT {listed} FROM {quoted(source)} LIMIT {_SAMPLE_ROWS}"  # noqa: S608
    ).fetchall()
    return {
        f"c{place}": _shapes({row[place - 1] for row in rows} - {None})
        for place in range(1, width + 1)
    }


def _shapes(cells: set[str]) -> list[str]:
    return [
        shape
        for shape, pattern in PATTERNS.items()
        if all(re.fullmatch(pattern, cell) for cell in cells)
    ]


def _likely(possible: list[str]) -> list[str]:
    """The shapes that are looked for first in all rows: each costs time."""
    if "integer" in possible:
        return ["integer"]
    if "decimal" in possible:
        return [each for each in ("decimal", "german", "double") if each in possible]
    return possible


def _found(
    connection: DuckDBPyConnection, source: str, wanted: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, Any]]:
    """Which of the wanted shapes all cells of each column have, and how many digits there are.

    A shape is None if the column has no cells, and False for one that was not wanted.
    """
    looks = [(column, *look) for column in wanted for look in _looks(column, wanted[column])]
    listed = ", ".join(look for *_, look in looks)
    asked = connection.execute(f"SELECT {listed} FROM {source}").fetchone()  # noqa: S608
    found: dict[str, dict[str, Any]] = {column: dict.fromkeys(SHAPES, False) for column in wanted}
    for (column, name, _), answer in zip(looks, asked or (), strict=True):
        found[column][name] = answer
    return found


def _looks(column: str, shapes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Queries about a column: names and expressions."""
    cell = _cell(column)
    yield "cells", f"count({cell})"
    for shape in shapes:
        test = _of(SHAPES[shape], cell)
        yield shape, f"bool_and({test}) FILTER (WHERE {cell} IS NOT NULL)"
    if _MEASURED.intersection(shapes):
        few = not _STYLED.intersection(shapes)
        for name, measure in MEASURES.items():
            if not few or name in ("whole", "points", "triples"):
                yield name, _of(measure, cell)


def _style(columns: Iterable[Mapping[str, Any]]) -> str:
    """How the columns that leave no doubt write numbers; empty if there are none, or of both."""
    styles = {
        style
        for found in columns
        for style in ("english", "german")
        if found[style] and found.get(f"{style}_sure") and not found["decimal"]
    }
    return styles.pop() if len(styles) == 1 else ""


def _shape(found: Mapping[str, Any], style: str) -> str:
    """The shape in which a column is read; empty for text."""
    if not found["cells"]:
        return "blank"
    for shape in SHAPES:
        if found[shape] and _is_certain(shape, found, style):
            return shape
    return ""


def _is_certain(shape: str, found: Mapping[str, Any], style: str) -> bool:
    match shape:
        case "decimal":
            in_thousands = style == "german" and found["triples"] and found["german"]
            return bool(_exact(shape, found)) and not in_thousands
        case "english" | "german" | "french" | "swiss":
            # Without any separator there is nothing to be read in two ways.
            sure = (
                found.get(f"{shape}_sure")
                or style == shape
                or not (found["points"] or found["commas"])
            )
            # Telephone numbers have blanks, and labels of lists brackets.
            doubtful = found["enclosed"] or (found["blanks"] and not found["french_sure"])
            sure = sure and not doubtful
            return bool(sure and _exact(shape, found) and len(found["units"] or ()) < 2)
        case "day_first":
            return bool(found["days_over_12"])
        case "month_first":
            return bool(found["months_over_12"])
        case "duration":
            # Below 24 hours it may be a time of day; 75:30 may be minutes, hours or a score.
            return bool(found["long"] and not found["two_parts"])
    return True


def _read(column: str, shape: str, found: Mapping[str, Any]) -> str:
    """The expression that reads a column."""
    cell = _cell(column)
    if shape == "blank":
        return "CAST(NULL AS VARCHAR)"
    if shape == "decimal":
        return f"CAST({cell} AS {_exact(shape, found)})"
    if shape in STYLES:
        return read_number(cell, shape, found["units"], _exact(shape, found))
    return _of(READS[shape], cell) if shape else f"nullif({column}, '')"


def _exact(shape: str, found: Mapping[str, Any]) -> str:
    """The exact type of numbers with so many digits; empty if there is none."""
    scale = found["commas" if shape in ("german", "french") else "points"] or 0
    scale += 2 if found.get("units") == ["%"] else 0
    whole = found["whole" if shape == "decimal" else "digits"] or 0
    if whole + scale > _MOST_DIGITS or scale > _SCALE:
        return ""
    # Sums of many of them fit too: DuckDB adds in 38 digits.
    return f"DECIMAL({max(18, whole + scale)}, {scale})"


def _of(expression: str, cell: str) -> str:
    return expression.replace("{cell}", cell)


def _cell(column: str) -> str:
    return f"nullif(trim({column}, ' \t\u00a0\u202f'), '')"
