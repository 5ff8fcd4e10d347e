"""SQLite: a fresh read-only connection per query, in a thread, under an authorizer and a clock."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from copy import copy
from typing import TYPE_CHECKING, TypeVar

from bos_mcp_db.backends.backend import ColumnType, Result, refuse_role
from bos_mcp_db.backends.blocking import BlockingCalls
from bos_mcp_db.backends.rows import RowCollector, check_columns
from bos_mcp_db.backends.sqlite_functions import bounded_functions
from bos_mcp_db.backends.sqlite_schema import (
    describe_tables,
    listed_tables,
    table_names,
    view_sources,
)
from bos_mcp_db.failures import DatabaseUnavailable, QueryFailed, QueryTimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bos_mcp_db.backends.backend import Limits, TableInfo, TableName
    from bos_mcp_db.backends.blocking import Clock
    from bos_sqlguard import Dialect, Kept

T = TypeVar("T")

_CATALOG_TIMEOUT_S = 10.0
_INSTRUCTIONS_PER_CHECK = 5_000
_ROWS_PER_FETCH = 200
_BUSY_TIMEOUT_S = 2.0
# The longest text or blob that SQLite may build; far above any cell worth returning.
_LONGEST_VALUE = 16 * 1024 * 1024
# What operators and keywords are called when they reach the authorizer as functions.
_OPERATORS = frozenset(
    {"like", "glob", "->", "->>", "current_date", "current_time", "current_timestamp"}
)
_CELL_TYPES: dict[type, ColumnType] = {int: "int64", float: "double", str: "string", bytes: "bytes"}


class SqliteBackend:
    """Adapter for one SQLite file."""

    dialect: Dialect = "sqlite"
    default_schema = "main"

    def __init__(
        self, path: Path, *, tables: Sequence[str], functions: frozenset[str], threads: int
    ) -> None:
        """Read ``path``, and in it only ``tables`` through only ``functions``."""
        self._uri = f"{path.absolute().as_uri()}?mode=ro"
        self._tables = _bare(tables)
        self._functions = functions | _OPERATORS
        self._calls = BlockingCalls(threads, "sqlite")

    def reading(self, tables: Sequence[str], role: str) -> SqliteBackend:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        refuse_role(role)
        part = copy(self)
        part._tables = _bare(tables)
        return part

    async def query(self, sql: str, limits: Limits, kept: Kept | None = None) -> Result:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""

        def fetch(connection: sqlite3.Connection) -> Result:
            with bounded_functions(connection):
                self._restrict(connection)
                return _fetch(connection, sql, limits)

        return await self._run(fetch, limits.timeout_s)

    async def listed(self) -> list[TableName]:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        return await self._run(listed_tables, _CATALOG_TIMEOUT_S)

    async def view_sources(self) -> Mapping[TableName, frozenset[TableName]]:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        return await self._run(view_sources, _CATALOG_TIMEOUT_S)

    async def describe(self, tables: Sequence[str]) -> list[TableInfo]:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        return await self._run(lambda c: describe_tables(c, tables), _CATALOG_TIMEOUT_S)

    async def aclose(self) -> None:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        await self._calls.aclose()

    async def _run(self, work: Callable[[sqlite3.Connection], T], timeout_s: float) -> T:
        """Run ``work`` on a new connection; when the caller gives up, so does the thread."""

        def call(clock: Clock) -> T:
            try:
                with closing(self._connect(clock)) as connection:
                    return work(connection)
            except sqlite3.Error as error:
                raise _translate(error, timeout_s) from None

        return await self._calls.run(call, timeout_s)

    def _connect(self, clock: Clock) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._uri, uri=True, isolation_level=None, timeout=_BUSY_TIMEOUT_S
        )
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.text_factory = _decode
        connection.set_progress_handler(clock.is_over, _INSTRUCTIONS_PER_CHECK)
        return connection

    def _restrict(self, connection: sqlite3.Connection) -> None:
        """Let statements compile only if they read allowed tables through allowed functions."""
        tables, functions = self._tables, self._functions
        hidden = table_names(connection) - tables

        def may_read(table: str, column: str, source: str | None) -> bool:
            if table.lower() in tables or (source or "").lower() in tables:
                return True
            # A source no column of which is used is reported by name alone, CTEs included.
            catalogue = table.lower().startswith(("sqlite_", "pragma_"))
            return column == "" and not catalogue and table.lower() not in hidden

        def authorize(
            action: int, first: str | None, second: str | None, _: str | None, source: str | None
        ) -> int:
            match action:
                case sqlite3.SQLITE_SELECT | sqlite3.SQLITE_RECURSIVE:
                    allowed = True
                case sqlite3.SQLITE_READ:
                    allowed = may_read(first or "", second or "", source)
                case sqlite3.SQLITE_FUNCTION:
                    allowed = (second or "").lower() in functions
                case _:
                    allowed = False
            return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

        connection.set_authorizer(authorize)


def _bare(tables: Sequence[str]) -> frozenset[str]:
    return frozenset(entry.rpartition(".")[2].lower() for entry in tables)


def _fetch(connection: sqlite3.Connection, sql: str, limits: Limits) -> Result:
    cursor = connection.execute(sql)
    if cursor.description is None:
        raise QueryFailed("The statement returns no rows; only SELECT queries are run.")
    check_columns(len(cursor.description), limits)
    collector = RowCollector(limits)
    while collector.wanted > 0:
        asked = min(collector.wanted, _ROWS_PER_FETCH)
        batch = cursor.fetchmany(asked)
        collector.add(list(row) for row in batch)
        if len(batch) < asked:
            break
    return Result(
        columns=[column[0] for column in cursor.description],
        types=[_column_type(place, collector.rows) for place in range(len(cursor.description))],
        rows=collector.rows,
        truncated=collector.truncated,
    )


def _column_type(place: int, rows: Sequence[Sequence[object]]) -> ColumnType:
    """The type of a column's cells: SQLite types values, not columns."""
    found = {type(row[place]) for row in rows if row[place] is not None}
    if found == {int, float}:
        return "double"
    return _CELL_TYPES.get(found.pop(), "unspecified") if len(found) == 1 else "unspecified"


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _translate(error: sqlite3.Error, timeout_s: float) -> Exception:
    match getattr(error, "sqlite_errorname", ""):
        case "SQLITE_INTERRUPT":
            return QueryTimedOut(timeout_s)
        case "SQLITE_CANTOPEN" | "SQLITE_NOTADB" | "SQLITE_IOERR" | "SQLITE_CORRUPT":
            return DatabaseUnavailable()
        case name:
            return QueryFailed(str(error), name)
