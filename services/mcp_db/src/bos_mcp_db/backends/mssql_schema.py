"""Schema of a SQL Server database, from its catalogue views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from bos_mcp_db.backends.backend import MAX_LISTED, ForeignKey, TableColumn, TableInfo
from bos_mcp_db.backends.mssql_session import Session
from bos_mcp_db.names import literal, split_table

_TEXT_TYPES = frozenset({"char", "varchar", "nchar", "nvarchar", "text", "ntext"})
_SIZED = frozenset({"char", "varchar", "binary", "varbinary"})
_SIZED_TWICE = frozenset({"nchar", "nvarchar"})
_SCALED = frozenset({"datetime2", "datetimeoffset", "time"})
_EXACT = frozenset({"decimal", "numeric"})

LISTED = f"""\
SELECT TOP ({MAX_LISTED + 1}) s.name AS schema_name, o.name
FROM sys.objects AS o
JOIN sys.schemas AS s ON s.schema_id = o.schema_id
WHERE o.type IN ('U', 'V') AND o.is_ms_shipped = 0
  AND HAS_PERMS_BY_NAME(QUOTENAME(s.name) + N'.' + QUOTENAME(o.name), N'OBJECT', N'SELECT') = 1
ORDER BY s.name, o.name
"""  # noqa: S608  a number of ours

TABLES = """\
SELECT o.object_id, s.name AS schema_name, o.name, o.type,
       CAST(p.value AS nvarchar(2000)) AS comment,
       (SELECT SUM(r.rows) FROM sys.partitions AS r
        WHERE r.object_id = o.object_id AND r.index_id IN (0, 1)) AS row_estimate
FROM sys.objects AS o
JOIN sys.schemas AS s ON s.schema_id = o.schema_id
LEFT JOIN sys.extended_properties AS p
       ON p.class = 1 AND p.major_id = o.object_id AND p.minor_id = 0
      AND p.name = N'MS_Description'
WHERE o.type IN ('U', 'V') AND ({wanted})
"""

COLUMNS = """\
SELECT c.object_id, c.name, t.name AS type_name, c.max_length, c.precision, c.scale, c.is_nullable,
       CAST(p.value AS nvarchar(2000)) AS comment
FROM sys.columns AS c
JOIN sys.objects AS o ON o.object_id = c.object_id
JOIN sys.types AS t ON t.user_type_id = c.user_type_id
LEFT JOIN sys.extended_properties AS p
       ON p.class = 1 AND p.major_id = c.object_id AND p.minor_id = c.column_id
      AND p.name = N'MS_Description'
WHERE c.object_id IN ({ids})
  AND HAS_PERMS_BY_NAME(QUOTENAME(SCHEMA_NAME(o.schema_id)) + N'.' + QUOTENAME(o.name), N'OBJECT',
                        N'SELECT', c.name, N'COLUMN') = 1
ORDER BY c.object_id, c.column_id
"""

KEYS = """\
SELECT k.parent_object_id, k.type, k.name, c.name AS column_name
FROM sys.key_constraints AS k
JOIN sys.index_columns AS i ON i.object_id = k.parent_object_id AND i.index_id = k.unique_index_id
JOIN sys.columns AS c ON c.object_id = i.object_id AND c.column_id = i.column_id
WHERE k.parent_object_id IN ({ids}) AND k.type IN ('PK', 'UQ')
ORDER BY k.parent_object_id, k.name, i.key_ordinal
"""

FOREIGN_KEYS = """\
SELECT f.parent_object_id, f.name, f.referenced_object_id, c.name AS column_name,
       r.name AS referenced_name
FROM sys.foreign_keys AS f
JOIN sys.foreign_key_columns AS p ON p.constraint_object_id = f.object_id
JOIN sys.columns AS c ON c.object_id = p.parent_object_id AND c.column_id = p.parent_column_id
JOIN sys.columns AS r
  ON r.object_id = p.referenced_object_id AND r.column_id = p.referenced_column_id
WHERE f.parent_object_id IN ({ids}) AND f.referenced_object_id IN ({ids})
ORDER BY f.parent_object_id, f.name, p.constraint_column_id
"""


def listed_tables(session: Session) -> list[tuple[str, str]]:
    """Return schema and name of all tables and views, sorted."""
    return [(row[0], row[1]) for row in _read(session, LISTED)]


def describe_tables(
    session: Session, tables: Sequence[str], default_schema: str
) -> list[TableInfo]:
    """Return the given tables that exist and may be read, in their order."""
    wanted = {_folded(*split_table(entry, default_schema)): entry for entry in tables}
    conditions = [
        f"(s.name = {literal(schema)} AND o.name = {literal(name)})"
        for schema, name in (split_table(entry, default_schema) for entry in tables)
    ]
    found = _read(session, TABLES.format(wanted=" OR ".join(conditions)))
    # By the collation of the database more may be equal than is here.
    found = [row for row in found if _folded(row[1], row[2]) in wanted]
    if not found:
        return []
    ids = ", ".join(str(int(row[0])) for row in found)
    columns, keys, foreign_keys = (
        _by_table(_read(session, statement.format(ids=ids)))
        for statement in (COLUMNS, KEYS, FOREIGN_KEYS)
    )
    names = {row[0]: wanted[_folded(row[1], row[2])] for row in found}
    by_name = {
        names[row[0]]: _table(
            row,
            columns.get(row[0], []),
            keys.get(row[0], []),
            _foreign_keys(foreign_keys.get(row[0], []), names),
            names[row[0]],
        )
        for row in found
    }
    return [by_name[entry] for entry in tables if entry in by_name]


def _read(session: Session, sql: str) -> list[Sequence[Any]]:
    session.execute(sql)
    return session.rows()


def _folded(schema: str, name: str) -> tuple[str, str]:
    return schema.lower(), name.lower()


def _by_table(rows: Sequence[Sequence[Any]]) -> dict[int, list[Sequence[Any]]]:
    return {table: list(group) for table, group in groupby(rows, key=itemgetter(0))}


def _table(
    row: Sequence[Any],
    columns: Sequence[Sequence[Any]],
    keys: Sequence[Sequence[Any]],
    foreign_keys: list[ForeignKey],
    entry: str,
) -> TableInfo:
    _, _, _, kind, comment, rows = row
    named = [
        (str(one[0]).strip(), [part[3] for part in parts])
        for one, parts in ((key, list(group)) for key, group in groupby(keys, key=itemgetter(1, 2)))
    ]
    return TableInfo(
        name=entry,
        kind="view" if str(kind).strip() == "V" else "table",
        comment=comment or "",
        row_estimate=None if rows is None else int(rows),
        columns=[_column(column) for column in columns],
        primary_key=next((parts for one, parts in named if one == "PK"), []),
        unique_keys=[parts for one, parts in named if one == "UQ"],
        foreign_keys=foreign_keys,
    )


def _column(row: Sequence[Any]) -> TableColumn:
    _, name, kind, length, precision, scale, nullable, comment = row
    return TableColumn(
        name=name,
        type=_declared(kind, length, precision, scale),
        nullable=bool(nullable),
        comment=comment or "",
        is_text=kind in _TEXT_TYPES,
    )


def _declared(kind: str, length: int, precision: int, scale: int) -> str:
    """The type as it was declared; lengths are kept in bytes."""
    if kind in _SIZED | _SIZED_TWICE:
        size = length // 2 if kind in _SIZED_TWICE else length
        return f"{kind}({'max' if length == -1 else size})"
    if kind in _EXACT:
        return f"{kind}({precision},{scale})"
    return f"{kind}({scale})" if kind in _SCALED else kind


def _foreign_keys(rows: Sequence[Sequence[Any]], names: Mapping[int, str]) -> list[ForeignKey]:
    keys = []
    for (_, target), group in groupby(rows, key=itemgetter(1, 2)):
        parts = list(group)
        # A key that points at a hidden table would reveal it.
        if target not in names:
            continue
        keys.append(
            ForeignKey([part[3] for part in parts], names[target], [part[4] for part in parts])
        )
    return keys
