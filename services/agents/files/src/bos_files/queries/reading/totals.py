"""A row of totals at the end of a table, which would be added up with the rows above it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from bos_files.queries.reading.columns import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duckdb import DuckDBPyConnection

_WORDS: Final = re.compile(
    r"(?:grand\s+)?(?:sub)?totals?|sum(?:me|ma)?|gesamt(?:summe)?|insgesamt|totale|somme|razem|suma"
    r"|celkem|toplam|összesen|итого|всего|разом|σύνολο|合计|总计|小计|合計|総計|總計|합계|총계|المجموع"
    r"|إجمالي|סך הכל|סה\"כ|कुल|योग|รวม",
    re.IGNORECASE,
)
_EXACT: Final = ("BIGINT", "DECIMAL")
_NUMBERS: Final = (*_EXACT, "DOUBLE")
_DOUBT: Final = "The last row may hold totals of the rows above."


def left_out_total(connection: DuckDBPyConnection, table: str) -> list[str]:
    """Delete a row of totals at the end of a table, or before its last row.

    It is one if a cell says so, and an exact number is the sum of its column: others may be
    averages.

    Returns:
        Notes on the row that was left out, or may have to be.
    """
    name = quoted(table)
    described = connection.execute(f"DESCRIBE {name}").fetchall()
    if not any(kind.startswith(_NUMBERS) for _, kind, *_ in described):
        return []
    exact = [at for at, (_, kind, *_) in enumerate(described) if kind.startswith(_EXACT)]
    sums = ", ".join(["count(*)", *(f"sum({quoted(str(described[at][0]))})" for at in exact)])
    last = connection.execute(f"SELECT rowid, * FROM {name} ORDER BY 1 DESC LIMIT 2").fetchall()  # noqa: S608 - names are quoted
    notes, doubtful = [], False
    for place, (row, *cells) in reversed(list(enumerate(last))):
        texts = [cell.strip(" :.") for cell in cells if isinstance(cell, str)]
        says_total = any(_WORDS.fullmatch(text) for text in texts)
        found = connection.execute(f"SELECT {sums} FROM {name} WHERE rowid < {row}").fetchone()  # noqa: S608
        above, *totals = found or (0,)
        given = [(cells[at], total) for at, total in zip(exact, totals, strict=False)]
        if says_total and _are_sums([each for each in given if each[0] is not None]):
            connection.execute(f"DELETE FROM {name} WHERE rowid = {row}")  # noqa: S608
            which = "row before the last" if place else "last row"
            notes.append(
                f"The {which}, {texts[0]!r}, holds the totals of the rows above and is left out."
            )
        else:
            # What stands behind totals may be an average.
            doubtful |= bool(above) and (says_total or bool(notes))
    return [*notes, _DOUBT] if doubtful else notes


def _are_sums(cells: Sequence[tuple[Any, Any]]) -> bool:
    """Whether one of the numbers, each with the sum of its column, is it; 0 proves nothing."""
    same = [value for value, total in cells if value == total]
    return any(same) or (bool(same) and len(same) == len(cells))
