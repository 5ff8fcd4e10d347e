"""Types of columns of text, by every cell: exact numbers, dates, truth values, or text.

A column has a type if all its cells that are not blank are written as one. Numbers with leading
zeros stay text, as numbers of articles and postal codes do, and so does what can be read in two
ways.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duckdb import DuckDBPyConnection

_DIGITS: Final = 38
_SCALE: Final = 12
_AT_ONCE: Final = 50
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
_NO_COMMAS: Final = "replace({cell}, ',', '')"
_NO_POINTS: Final = "replace(replace({cell}, '.', ''), ',', '.')"


def make_typed(
    connection: DuckDBPyConnection, source: str, target: str, names: Sequence[str]
) -> None:
    """Make ``target`` of ``source``, a table of text columns c1, c2, …: named, and with types.

    Cells that are blank become NULL.
    """
    reads = []
    for start in range(0, len(names), _AT_ONCE):
        places = range(start + 1, min(start + _AT_ONCE, len(names)) + 1)
        looks = ", ".join(look for place in places for look in _looks(f"c{place}"))
        looking = f"SELECT {looks} FROM {quoted(source)}"  # noqa: S608 - names are quoted
        found = connection.execute(looking).fetchone() or ()
        width = len(found) // len(places)
        for at, place in enumerate(places):
            reads.append(_read(f"c{place}", found[at * width : (at + 1) * width]))
    listed = ", ".join(f"{read} AS {quoted(name)}" for read, name in zip(reads, names, strict=True))
    made = f"SELECT {listed} FROM {quoted(source)}"  # noqa: S608
    connection.execute(f"CREATE TABLE {quoted(target)} AS {made}")


def quoted(name: str) -> str:
    """Return ``name`` as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def _looks(column: str) -> list[str]:
    """What is asked of a column; _read takes the answers in this order."""
    cell = _cell(column)

    def all_are(pattern: str, unless: str = "") -> str:
        found = f"bool_and(regexp_full_match({cell}, '{pattern}'){unless})"
        return f"{found} FILTER (WHERE {cell} IS NOT NULL)"

    whole = _digits(cell, "^[+-]?([0-9]+)")
    return [
        f"count({cell})",
        all_are(_TRUTH),
        all_are(_INTEGER),
        all_are(_DECIMAL),
        f"max({whole})",
        f"max({_digits(cell, '[.]([0-9]+)$')})",
        all_are(_DOUBLE, f" AND NOT regexp_matches({cell}, '^[+-]?0[0-9]')"),
        all_are(_COMMAS),
        all_are(_POINTS),
        f"max({_digits(cell, '[.,]([0-9]+)$')})",
        f"max(length(regexp_replace({cell}, '[^0-9]', '', 'g')))",
        all_are(_DATE, f" AND try_cast({cell} AS DATE) IS NOT NULL"),
        all_are(_POINTED_DATE, f" AND {_READ_POINTED_DATE.format(cell=cell)} IS NOT NULL"),
        all_are(_TIMESTAMP, f" AND try_cast({cell} AS TIMESTAMP) IS NOT NULL"),
    ]


def _read(column: str, found: Sequence[object]) -> str:
    """The expression that reads a column, by what was found of its cells."""
    cell = _cell(column)
    (cells, truth, integer, decimal, whole, scale, double) = found[:7]
    (commas, points, signed_scale, digits, iso_date, pointed_date, timestamp) = found[7:]
    if not cells:
        return "CAST(NULL AS VARCHAR)"
    if truth:
        return f"lower({cell}) = 'true'"
    if integer:
        return f"CAST({cell} AS BIGINT)"
    if decimal and (exact := _exact(_number(whole), _number(scale))):
        return f"CAST({cell} AS {exact})"
    if commas and (exact := _exact(_number(digits), _number(signed_scale))):
        return f"CAST({_NO_COMMAS.format(cell=cell)} AS {exact})"
    if points and (exact := _exact(_number(digits), _number(signed_scale))):
        return f"CAST({_NO_POINTS.format(cell=cell)} AS {exact})"
    if double:
        return f"CAST({cell} AS DOUBLE)"
    if iso_date:
        return f"CAST({cell} AS DATE)"
    if pointed_date:
        return _READ_POINTED_DATE.format(cell=cell)
    if timestamp:
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
