"""Tables of MySQL and MariaDB as their information schema declares them."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from bos_mcp_db.backends.backend import MAX_LISTED, ForeignKey, TableColumn, TableInfo
from bos_mcp_db.names import split_table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    Rows = Sequence[Sequence[Any]]
    Read = Callable[[str, Sequence[Any]], Awaitable[Rows]]

Name = tuple[str, str]
"""Database and table."""

_TEXT_TYPES = frozenset(
    {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"}
)

_LISTED = f"""\
SELECT table_schema, table_name FROM information_schema.tables
WHERE BINARY table_schema = %s AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED', 'VIEW')
ORDER BY table_name LIMIT {MAX_LISTED + 1}"""  # noqa: S608  a number of ours
_TABLES = """\
SELECT table_schema, table_name, table_type, table_comment, table_rows
FROM information_schema.tables WHERE {wanted}"""
_COLUMNS = """\
SELECT table_schema, table_name, column_name, column_type, is_nullable, column_comment, data_type
FROM information_schema.columns WHERE {wanted}
ORDER BY table_schema, table_name, ordinal_position"""
# A user that may only read does not see key_column_usage in every version; the indexes are shown.
_UNIQUE = """\
SELECT table_schema, table_name, index_name, column_name
FROM information_schema.statistics WHERE non_unique = 0 AND ({wanted})
ORDER BY table_schema, table_name, index_name, seq_in_index"""
_FOREIGN = """\
SELECT table_schema, table_name, constraint_name, referenced_table_schema, referenced_table_name,
       column_name, referenced_column_name
FROM information_schema.key_column_usage
WHERE referenced_table_name IS NOT NULL AND ({wanted})
ORDER BY table_schema, table_name, constraint_name, ordinal_position"""


async def listed_tables(read: Read, database: str) -> list[Name]:
    """Return the names of all tables and views of ``database``, sorted."""
    rows = await read(_LISTED, [database])
    return [(row[0], row[1]) for row in rows]


async def describe_tables(
    read: Read, tables: Sequence[str], default_schema: str
) -> list[TableInfo]:
    """Return the given tables that exist and may be read, in their order."""
    wanted = {split_table(entry, default_schema): entry for entry in tables}
    # Compared as bytes: another spelling is another table where the file system says so.
    condition = " OR ".join(["(BINARY table_schema = %s AND BINARY table_name = %s)"] * len(wanted))
    names = [part for pair in wanted for part in pair]
    found, columns, unique, foreign = [
        await read(statement.format(wanted=condition), names)
        for statement in (_TABLES, _COLUMNS, _UNIQUE, _FOREIGN)
    ]
    by_table = [_by_table(rows) for rows in (columns, unique, foreign)]
    by_name = {}
    for row in found:
        name: Name = (row[0], row[1])
        own_columns, own_unique, own_foreign = (rows.get(name, []) for rows in by_table)
        keys = {key: [row[3] for row in rows] for key, rows in groupby(own_unique, itemgetter(2))}
        by_name[wanted[name]] = TableInfo(
            name=wanted[name],
            kind="view" if "VIEW" in row[2] else "table",
            comment="" if "VIEW" in row[2] else row[3] or "",
            row_estimate=None if row[4] is None else int(row[4]),
            columns=[_column(column) for column in own_columns],
            primary_key=keys.pop("PRIMARY", []),
            unique_keys=list(keys.values()),
            foreign_keys=_foreign_keys(own_foreign, wanted),
        )
    return [by_name[entry] for entry in tables if entry in by_name]


def _by_table(rows: Rows) -> dict[Name, list[Sequence[Any]]]:
    return {name: list(group) for name, group in groupby(rows, key=itemgetter(0, 1))}


def _column(row: Sequence[Any]) -> TableColumn:
    _, _, name, declared, nullable, comment, kind = row
    return TableColumn(
        name=name,
        type=declared,
        nullable=nullable == "YES",
        comment=comment or "",
        is_text=kind in _TEXT_TYPES,
    )


def _foreign_keys(rows: Rows, wanted: Mapping[Name, str]) -> list[ForeignKey]:
    keys = []
    for (_, *target), group in groupby(rows, key=itemgetter(2, 3, 4)):
        parts = list(group)
        # A key that points at a hidden table would reveal it.
        if (entry := wanted.get((target[0], target[1]))) is not None:
            keys.append(ForeignKey([part[5] for part in parts], entry, [part[6] for part in parts]))
    return keys
