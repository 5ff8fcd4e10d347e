"""Frequent values of text columns, so that a question's words meet the data's words."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from bos_mcp_db.backends.backend import TableInfo
from bos_mcp_db.databases import Database
from bos_mcp_db.failures import QueryFailed, QueryRefused, QueryTimedOut, ResultTooLarge
from bos_mcp_db.names import quote, split_table

_ROWS_READ = 500
_TIMEOUT_S = 2.0
_TIMEOUT_ALL_S = 6.0
_LONGEST = 60
_NO_LETTER = re.compile(r"[\W_]+")

Samples = dict[str, dict[str, list[str]]]
"""Values by table and column."""


class HiddenColumns:
    """Columns whose values are never shown as samples: the name contains one of ``words``.

    Case and everything but letters and digits are ignored, so ``api_key`` hides ``ApiKeyHash``.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(filter(None, map(_letters, words)))

    def __contains__(self, column: str) -> bool:
        """Whether the values of ``column`` stay hidden."""
        name = _letters(column)
        return any(word in name for word in self._words)


async def sample_values(
    database: Database, tables: Sequence[TableInfo], hidden: HiddenColumns
) -> Samples:
    """Return frequent values among the first rows of each table; none where that is not quick."""
    if database.sample_values == 0:
        return {}
    samples: Samples = {}
    give_up = time.monotonic() + _TIMEOUT_ALL_S
    for table in tables:
        if time.monotonic() >= give_up:
            break
        samples[table.name] = await _sample_table(database, table, hidden)
    return samples


async def _sample_table(
    database: Database, table: TableInfo, hidden: HiddenColumns
) -> dict[str, list[str]]:
    names = [
        column.name for column in table.columns if column.is_text and column.name not in hidden
    ]
    names = names[: database.limits.max_columns]
    if not names:
        return {}
    dialect = database.backend.dialect
    schema, bare = split_table(table.name, database.backend.default_schema)
    source = f"{quote(schema, dialect)}.{quote(bare, dialect)}"
    columns = ", ".join(quote(name, dialect) for name in names)
    limits = replace(database.limits, max_rows=_ROWS_READ, timeout_s=_TIMEOUT_S)
    # Names come from the catalogue and are quoted.
    sql = f"SELECT {columns} FROM {source} LIMIT {_ROWS_READ}"  # noqa: S608
    if dialect == "tsql":
        sql = f"SELECT TOP ({_ROWS_READ}) {columns} FROM {source}"  # noqa: S608
    try:
        result = await database.backend.query(sql, limits)
    except (QueryFailed, QueryRefused, QueryTimedOut, ResultTooLarge):
        return {}
    return {
        name: _frequent([row[place] for row in result.rows], database.sample_values)
        for place, name in enumerate(names)
    }


def _frequent(cells: Sequence[object], count: int) -> list[str]:
    texts = Counter(cell for cell in cells if isinstance(cell, str) and cell)
    return [
        text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
        for text, _ in texts.most_common(count)
    ]


def _letters(name: str) -> str:
    return _NO_LETTER.sub("", name).casefold()
