"""A double of SQL Server: TDS on the wire, T-SQL translated and answered by a SQLite file.

The real adapter and the real driver talk to it, so it runs through the same tests as the live
backends. It has whole numbers and texts alone, no permissions, no cost estimates, and of T-SQL what
translates to SQLite; test_sql_server_double.py shows each of these limits. A query that would take
long is never finished: the double waits for the client's attention signal, as a server would.
"""

import re
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot import exp
from tds_server import SILENCE, Refusal, Rows, tds_server

# Instructions of SQLite after which a query counts as one that takes long.
_MOST_INSTRUCTIONS = 500_000
_INVALID = 207
_SHAPE = re.compile(r"first_result_set\(N'(?P<sql>.*)', NULL, 0\)", re.DOTALL)
_WANTED = re.compile(r"s\.name = N'dbo' AND o\.name = N'(\w+)'")
_IDS = re.compile(r"object_id IN \(([0-9, ]+)\)")
# Name, length in bytes, precision and scale of what SQLite declares.
_DECLARED = {
    "TEXT": ("nvarchar", 200, 0, 0),
    "INTEGER": ("int", 4, 10, 0),
    "NUMERIC": ("decimal", 9, 12, 2),
    "REAL": ("float", 8, 53, 0),
    "BLOB": ("varbinary", -1, 0, 0),
}


@asynccontextmanager
async def sql_server_double(path: Path) -> AsyncIterator[str]:
    """URL of a double whose schema ``dbo`` is the SQLite file at ``path``."""
    async with tds_server(_Answers(path)) as server:
        yield f"mssql://reader:hush@127.0.0.1:{server.port}/shop?encrypt=no"


class _TakesLong(Exception):
    """A query does not end within the double's patience."""


class _Answers:
    """Answers batches: the adapter's own by their text, any other one as a query."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, batch: str) -> object:
        if "default_schema" in batch:
            return Rows(("default_schema", "may_write"), [["dbo", 0]])
        if batch.startswith(("SET ", "BEGIN ", "IF @@TRANCOUNT")):
            return Rows()
        if shape := _SHAPE.search(batch):
            return self._shape(shape["sql"].replace("''", "'"))
        with closing(self._open()) as connection:
            for view, answer in (
                ("o.is_ms_shipped = 0", _listed),
                ("FROM sys.objects", _tables),
                ("FROM sys.columns", _columns),
                ("FROM sys.key_constraints", _keys),
                ("FROM sys.foreign_keys", _foreign_keys),
            ):
                if view in batch:
                    return answer(connection, batch)
        return self._query(batch)

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", uri=True)
        connection.execute("ATTACH ? AS dbo", (f"file:{self._path}?mode=ro",))
        return connection

    def _run(self, tree: exp.Expression) -> tuple[list[str], list[Sequence[Any]]]:
        """Names and rows of a query.

        Raises:
            sqlite3.Error: SQLite refuses it.
            _TakesLong: it does not end soon.
        """
        with closing(self._open()) as connection:
            connection.set_progress_handler(lambda: 1, _MOST_INSTRUCTIONS)
            try:
                cursor = connection.execute(tree.sql("sqlite"))
                return [column[0] for column in cursor.description], cursor.fetchall()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    raise _TakesLong from None
                raise

    def _query(self, sql: str) -> object:
        try:
            return Rows(*self._run(_select(sql)))
        except _TakesLong:
            return SILENCE
        except sqlite3.Error as error:
            return Refusal(_INVALID, str(error))

    def _shape(self, sql: str) -> Rows:
        """Names of the columns, and their types by the first row; no columns, if it has none."""
        names = ("name", "system_type_name", "error_message", "error_number")
        tree = sqlglot.parse_one(sql, read="tsql")
        if not isinstance(tree, exp.Select):
            return Rows(names)
        try:
            columns, _ = self._run(tree.limit(0))
            _, rows = self._run(tree)
        except _TakesLong:
            rows = []
        except sqlite3.Error as error:
            return Rows(names, [["", "", str(error), _INVALID]])
        first = rows[0] if rows else [""] * len(columns)
        types = ["bigint" if isinstance(cell, int) else "nvarchar(4000)" for cell in first]
        return Rows(names, [[*column, None, 0] for column in zip(columns, types, strict=True)])


def _select(sql: str) -> exp.Select:
    tree = sqlglot.parse_one(sql, read="tsql")
    # Such a statement has no shape, so the adapter never sends it.
    assert isinstance(tree, exp.Select), sql
    return tree


def _names(connection: sqlite3.Connection) -> dict[str, int]:
    """Object ids by name of table."""
    found = connection.execute("SELECT name, rowid FROM dbo.sqlite_schema WHERE type = 'table'")
    return dict(found.fetchall())


def _asked(connection: sqlite3.Connection, batch: str) -> list[tuple[int, str]]:
    ids = _IDS.search(batch)
    assert ids is not None, batch
    names = {number: name for name, number in _names(connection).items()}
    return [(int(each), names[int(each)]) for each in ids[1].split(",")]


def _listed(connection: sqlite3.Connection, _: str) -> Rows:
    return Rows(("schema_name", "name"), [("dbo", name) for name in sorted(_names(connection))])


def _tables(connection: sqlite3.Connection, batch: str) -> Rows:
    names = _names(connection)
    rows = [
        (names[name], "dbo", name, "U ", None, _count(connection, name))
        for name in _WANTED.findall(batch)
        if name in names
    ]
    return Rows(("object_id", "schema_name", "name", "type", "comment", "row_estimate"), rows)


def _count(connection: sqlite3.Connection, table: str) -> int:
    (count,) = connection.execute(f'SELECT count(*) FROM dbo."{table}"').fetchone()
    return int(count)


def _columns(connection: sqlite3.Connection, batch: str) -> Rows:
    rows = [
        (table_id, name, *_DECLARED[declared], int(not (required or key)), None)
        for table_id, table in _asked(connection, batch)
        for _, name, declared, required, _, key in connection.execute(
            f'PRAGMA dbo.table_info("{table}")'
        )
    ]
    head = ("object_id", "name", "type_name", "max_length", "precision", "scale", "is_nullable")
    return Rows((*head, "comment"), rows)


def _keys(connection: sqlite3.Connection, batch: str) -> Rows:
    rows: list[tuple[int, str, str, str]] = []
    for table_id, table in _asked(connection, batch):
        described = connection.execute(f'PRAGMA dbo.table_info("{table}")').fetchall()
        parts = sorted((key, name) for _, name, _, _, _, key in described if key)
        rows += [(table_id, "PK", f"pk_{table}", name) for _, name in parts]
        for _, index, _, origin, _ in connection.execute(f'PRAGMA dbo.index_list("{table}")'):
            if origin == "u":
                indexed = connection.execute(f'PRAGMA dbo.index_info("{index}")')
                rows += [(table_id, "UQ", index, name) for _, _, name in indexed]
    return Rows(("parent_object_id", "type", "name", "column_name"), rows)


def _foreign_keys(connection: sqlite3.Connection, batch: str) -> Rows:
    asked = _asked(connection, batch)
    ids = {name: number for number, name in asked}
    rows = [
        (table_id, f"fk_{table}_{number}", ids[target], own, other)
        for table_id, table in asked
        for number, _, target, own, other, *_ in connection.execute(
            f'PRAGMA dbo.foreign_key_list("{table}")'
        )
        if target in ids
    ]
    head = ("parent_object_id", "name", "referenced_object_id", "column_name", "referenced_name")
    return Rows(head, rows)
