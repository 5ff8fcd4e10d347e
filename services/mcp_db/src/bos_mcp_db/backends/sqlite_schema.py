"""Schema of a SQLite file, from its own catalogue."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from bos_mcp_db.backends.backend import MAX_LISTED, ForeignKey, TableColumn, TableInfo, TableName
from bos_mcp_db.names import quote


def table_names(connection: sqlite3.Connection) -> frozenset[str]:
    """Return the names of all tables and views, in lower case."""
    rows = connection.execute(
        "SELECT lower(name) FROM sqlite_schema WHERE type IN ('table', 'view')"
    )
    return frozenset(row[0] for row in rows)


def listed_tables(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return schema and name of all tables and views but SQLite's own, sorted."""
    rows = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
        " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name LIMIT ?",
        (MAX_LISTED + 1,),
    )
    return [("main", row[0]) for row in rows]


def view_sources(connection: sqlite3.Connection) -> dict[TableName, frozenset[TableName]]:
    """Return what each view reads, as SQLite reports it of a query that is not run."""
    found: dict[TableName, frozenset[TableName]] = {}
    views = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'view'").fetchall()
    for (view,) in views:
        read: set[TableName] = set()

        def authorize(action: int, table: str | None, *_: str | None, into: set[Any] = read) -> int:
            if action == sqlite3.SQLITE_READ and table:
                into.add(("main", table))
            return sqlite3.SQLITE_OK

        connection.set_authorizer(authorize)
        try:
            connection.execute(f"EXPLAIN SELECT * FROM main.{quote(view)}").close()  # noqa: S608
        except sqlite3.OperationalError:
            continue  # of a table that is gone: nothing can be read by it
        finally:
            connection.set_authorizer(None)
        found[("main", view)] = frozenset(read - {("main", view)})
    return found


def describe_tables(connection: sqlite3.Connection, tables: Sequence[str]) -> list[TableInfo]:
    """Return the given tables that exist, in their order."""
    entries = {entry.rpartition(".")[2].lower(): entry for entry in tables}
    listed = {
        name.lower(): (name, kind, bool(without_rowid))
        for _, name, kind, _, without_rowid, *_ in connection.execute("PRAGMA main.table_list")
    }
    return [
        _describe(connection, entry, entries, *listed[name])
        for name, entry in entries.items()
        if name in listed
    ]


def _describe(
    connection: sqlite3.Connection,
    entry: str,
    entries: Mapping[str, str],
    name: str,
    kind: str,
    without_rowid: bool,
) -> TableInfo:
    columns = _pragma(connection, "table_xinfo", name)
    keys = sorted((c["pk"], c["name"]) for c in columns if c["pk"])
    return TableInfo(
        name=entry,
        kind="view" if kind == "view" else "table",
        comment="",
        row_estimate=None if kind == "view" or without_rowid else _rows(connection, name),
        columns=[
            TableColumn(
                name=column["name"],
                type=column["type"],
                nullable=not column["notnull"] and not column["pk"],
                is_text=any(word in column["type"].upper() for word in ("CHAR", "CLOB", "TEXT")),
            )
            for column in columns
            if column["hidden"] != 1
        ],
        primary_key=[key[1] for key in keys],
        unique_keys=[
            [part["name"] for part in _pragma(connection, "index_info", index["name"])]
            for index in _pragma(connection, "index_list", name)
            if index["unique"] and index["origin"] == "u"
        ],
        foreign_keys=_foreign_keys(connection, name, entries),
    )


def _foreign_keys(
    connection: sqlite3.Connection, name: str, entries: Mapping[str, str]
) -> list[ForeignKey]:
    parts: dict[int, list[dict[str, Any]]] = {}
    for part in _pragma(connection, "foreign_key_list", name):
        parts.setdefault(part["id"], []).append(part)
    keys = []
    for group in parts.values():
        # A key that points at a hidden table would reveal it.
        target = entries.get(group[0]["table"].lower())
        if target is None:
            continue
        group.sort(key=lambda part: part["seq"])
        references = [part["to"] for part in group]
        if None in references:  # REFERENCES t without columns means its primary key
            target_columns = _pragma(connection, "table_xinfo", group[0]["table"])
            references = [c["name"] for c in sorted(target_columns, key=_key_place) if c["pk"]]
        keys.append(ForeignKey([part["from"] for part in group], target, references))
    return keys


def _key_place(column: Mapping[str, Any]) -> int:
    return int(column["pk"])


def _rows(connection: sqlite3.Connection, name: str) -> int:
    """The largest row id: instant, and exact where rows were only ever added."""
    row = connection.execute(f"SELECT max(rowid) FROM main.{quote(name)}").fetchone()  # noqa: S608
    return int(row[0] or 0)


def _pragma(connection: sqlite3.Connection, pragma: str, name: str) -> list[dict[str, Any]]:
    cursor = connection.execute(f"PRAGMA main.{pragma}({quote(name)})")
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor]
