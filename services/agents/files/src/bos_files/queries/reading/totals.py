"""The row of totals at the end of a table, which would be added up with the rows above it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bos_files.queries.reading.columns import quoted

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_WORDS: Final = re.compile(
    r"(?:grand\s+)?(?:sub)?totals?|sum(?:me|ma)?|gesamt(?:summe)?|insgesamt|totale|somme|razem|suma"
    r"|celkem|toplam|összesen|итого|всего|разом|σύνολο|合计|总计|小计|合計|総計|總計|합계|총계|المجموع"
    r"|إجمالي|סך הכל|סה\"כ|कुल|योग|รวม",
    re.IGNORECASE,
)
_EXACT: Final = ("BIGINT", "DECIMAL")


def left_out_total(connection: DuckDBPyConnection, table: str) -> list[str]:
    """Delete the last row of a table if it is the sum of all rows above it.

    It is one if a cell says so, and each of its exact numbers is the sum of its column.

    Returns:
        A note on the row that was left out.
    """
    name = quoted(table)
    described = connection.execute(f"DESCRIBE {name}").fetchall()
    numbers = [quoted(str(column)) for column, kind, *_ in described if kind.startswith(_EXACT)]
    if not numbers:
        return []
    last_id = f"(SELECT max(rowid) FROM {name})"  # noqa: S608 - names are quoted
    last = connection.execute(f"SELECT * FROM {name} WHERE rowid = {last_id}").fetchone()  # noqa: S608
    texts = [cell.strip(" :.") for cell in last or () if isinstance(cell, str)]
    if not any(_WORDS.fullmatch(text) for text in texts):
        return []
    tests = [f"({column} IS NULL OR {column} = total_{at})" for at, column in enumerate(numbers)]
    sums = ", ".join(f"sum({column}) AS total_{at}" for at, column in enumerate(numbers))
    filled = " OR ".join(f"{column} IS NOT NULL" for column in numbers)
    found = connection.execute(
        f"SELECT count(*) FROM {name}, (SELECT {sums} FROM {name} WHERE rowid < {last_id})"  # noqa: S608
        f" WHERE {name}.rowid = {last_id} AND ({filled}) AND {' AND '.join(tests)}"
    ).fetchone()
    if not found or not found[0]:
        return []
    connection.execute(f"DELETE FROM {name} WHERE rowid = {last_id}")  # noqa: S608
    return [f"The last row, {texts[0]!r}, holds the totals of the rows above and is left out."]
