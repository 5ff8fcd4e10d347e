"""SQL Server: a session of its own per query, in a thread, in a transaction that is rolled back.

SQL Server has no read-only transactions. Behind the guard it is therefore the role that keeps data
as they are, and a login that may write is refused before its first query.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any, TypeVar

from bos_mcp_db.backends.backend import ColumnType, Result, refuse_role
from bos_mcp_db.backends.blocking import BlockingCalls, Clock
from bos_mcp_db.backends.mssql_schema import describe_tables, listed_tables
from bos_mcp_db.backends.mssql_session import OpenSession, ServerError, Session
from bos_mcp_db.backends.mssql_wire import ConnectionFailed, TooManyBytes
from bos_mcp_db.backends.rows import RowCollector, check_columns, check_cost
from bos_mcp_db.failures import DatabaseUnavailable, QueryFailed, QueryTimedOut, ResultTooLarge
from bos_mcp_db.names import literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bos_mcp_db.backends.backend import Limits, TableInfo
    from bos_sqlguard import Dialect, Kept

T = TypeVar("T")

_CATALOG_TIMEOUT_S = 10.0
_CATALOG_BYTES = 8 * 1024 * 1024
# How long the server may take to confirm that it stopped; then the connection is closed on it.
_GOODBYE_S = 2.0
_WIRE_SLACK_BYTES = 1024 * 1024

_TYPES: dict[str, ColumnType] = {
    "bit": "bool",
    "tinyint": "int64",
    "smallint": "int64",
    "int": "int64",
    "bigint": "int64",
    "real": "double",
    "float": "double",
    "decimal": "decimal",
    "numeric": "decimal",
    "money": "decimal",
    "smallmoney": "decimal",
    "binary": "bytes",
    "varbinary": "bytes",
    "image": "bytes",
    "timestamp": "bytes",
    "rowversion": "bytes",
    "hierarchyid": "bytes",
    "geometry": "bytes",
    "geography": "bytes",
    "date": "date",
    "datetime": "timestamp",
    "datetime2": "timestamp",
    "smalldatetime": "timestamp",
    "datetimeoffset": "timestamp",
}

# Cells are cut at TEXTSIZE bytes, in silence; so it lies where a cut cell exceeds the byte limit.
_SESSION = """\
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET IMPLICIT_TRANSACTIONS OFF;
SET QUOTED_IDENTIFIER ON;
SET ANSI_NULLS ON;
SET LANGUAGE us_english;
SET DEADLOCK_PRIORITY LOW;
SET LOCK_TIMEOUT 2000;
SET TEXTSIZE {text_size};
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
"""

_RIGHTS = """\
SELECT SCHEMA_NAME() AS default_schema,
       CASE WHEN IS_SRVROLEMEMBER(N'sysadmin') = 1
              OR HAS_PERMS_BY_NAME(NULL, NULL, N'CONTROL SERVER') = 1
              OR HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'CONTROL') = 1
              OR HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'ALTER') = 1
              OR HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'INSERT') = 1
              OR HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'UPDATE') = 1
              OR HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'DELETE') = 1
              OR HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'EXECUTE') = 1
              OR HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'CREATE TABLE') = 1
            THEN 1 ELSE 0 END AS may_write
"""

_SHAPE = """\
SELECT name, system_type_name, error_message, error_number
FROM sys.dm_exec_describe_first_result_set({query}, NULL, 0)
WHERE is_hidden = 0 OR error_message IS NOT NULL
ORDER BY column_ordinal
"""

_BEGIN = "BEGIN TRANSACTION"
_ROLLBACK = "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION"
_COST = re.compile(r'StatementSubTreeCost="([0-9.eE+-]{1,40})"')


class MssqlBackend:
    """Adapter for one SQL Server database."""

    dialect: Dialect = "tsql"

    def __init__(
        self,
        open_session: OpenSession,
        *,
        default_schema: str,
        threads: int,
        catalogue_only: bool = False,
    ) -> None:
        """Query through sessions of ``open_session``, at most ``threads`` at once.

        With ``catalogue_only`` the login may be an administrator's, and nothing but the catalogue
        may be read: ``query`` refuses.
        """
        self.default_schema = default_schema
        self._catalogue_only = catalogue_only
        self._open_session = open_session
        self._calls = BlockingCalls(threads, "mssql")

    def reading(self, tables: Sequence[str], role: str) -> MssqlBackend:
        """See :class:`~bos_mcp_db.backends.backend.Backend`; the guard alone limits the tables."""
        refuse_role(role)
        return self

    async def query(self, sql: str, limits: Limits, kept: Kept | None = None) -> Result:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        if self._catalogue_only:
            raise QueryFailed("This connection reads the catalogue alone.")

        def fetch(clock: Clock) -> Result:
            with self._reading(clock, limits.timeout_s, limits.max_bytes) as session:
                return _fetch(session, sql, limits)

        return await self._calls.run(fetch, limits.timeout_s)

    async def listed(self) -> list[tuple[str, str]]:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""

        def read(clock: Clock) -> list[tuple[str, str]]:
            with self._reading(clock, _CATALOG_TIMEOUT_S, _CATALOG_BYTES) as session:
                return listed_tables(session)

        return await self._calls.run(read, _CATALOG_TIMEOUT_S)

    async def view_sources(self) -> None:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""

    async def describe(self, tables: Sequence[str]) -> list[TableInfo]:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""

        def read(clock: Clock) -> list[TableInfo]:
            with self._reading(clock, _CATALOG_TIMEOUT_S, _CATALOG_BYTES) as session:
                return describe_tables(session, tables, self.default_schema)

        return await self._calls.run(read, _CATALOG_TIMEOUT_S)

    async def aclose(self) -> None:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        await self._calls.aclose()

    @contextlib.contextmanager
    def _reading(self, clock: Clock, timeout_s: float, max_bytes: int) -> Iterator[Session]:
        """A session inside a transaction that is rolled back, however the block ends."""
        try:
            with self._open_session(clock) as session:
                self._prepare(session, max_bytes)
                try:
                    yield session
                finally:
                    _leave(session)
        except TimeoutError:
            raise QueryTimedOut(timeout_s) from None
        except ConnectionFailed:
            raise DatabaseUnavailable from None
        except TooManyBytes:
            raise ResultTooLarge(max_bytes) from None
        except ServerError as error:
            raise QueryFailed(error.message, str(error.number)) from None

    def _prepare(self, session: Session, max_bytes: int) -> None:
        session.allow(_WIRE_SLACK_BYTES)
        session.execute(_SESSION.format(text_size=2 * max_bytes + 2) + _RIGHTS)
        ((schema, may_write),) = session.rows()
        if self._catalogue_only:
            return
        if may_write:
            raise QueryFailed(
                "The login may change this database, and SQL Server has no read-only transactions:"
                " use a login that may only read, as bos_mcp_db.provisioning.provision_mssql makes"
                " one."
            )
        if str(schema).lower() != self.default_schema.lower():
            raise QueryFailed(
                f"The login's default schema is {schema} and not {self.default_schema}, so names"
                " would mean other tables: ALTER USER … WITH DEFAULT_SCHEMA, or set default_schema."
            )
        session.execute(_BEGIN)
        session.rows()
        # Names and numbers take less on the wire than here, texts at most twice as much.
        session.allow(4 * max_bytes + _WIRE_SLACK_BYTES)


def _leave(session: Session) -> None:
    """Stop the query and roll back; if that fails, closing the connection does both."""
    with contextlib.suppress(Exception):
        session.stop(Clock(_GOODBYE_S))
        session.execute(_ROLLBACK)
        session.rows()


def _fetch(session: Session, sql: str, limits: Limits) -> Result:
    names, types = _shape(session, sql, limits)
    if limits.max_estimated_cost is not None:
        check_cost(_estimated_cost(session, sql), limits)
    session.execute(sql)
    collector = RowCollector(limits)
    try:
        collector.add(list(row) for row in _rows(session, collector.wanted))
    except TooManyBytes:
        if not collector.rows:
            raise
        collector.truncated = True
    return Result(names, types, collector.rows, collector.truncated)


def _rows(session: Session, most: int) -> Iterator[Sequence[Any]]:
    for _ in range(most):
        row = session.row()
        if row is None:
            return
        yield row


def _shape(session: Session, sql: str, limits: Limits) -> tuple[list[str], list[ColumnType]]:
    """Names and types of the result; the server gives them without running the query."""
    session.execute(_SHAPE.format(query=literal(sql)))
    columns = session.rows()
    for _, _, error, number in columns:
        if error:
            raise QueryFailed(str(error), str(number or ""))
    if not columns:
        raise QueryFailed("The statement returns no rows; only SELECT queries are run.")
    check_columns(len(columns), limits)
    return [column[0] or "" for column in columns], [_column_type(column[1]) for column in columns]


def _column_type(declared: str | None) -> ColumnType:
    """The type of ``decimal(12,2)`` and the like; types of the database's own have none."""
    return _TYPES.get((declared or "").partition("(")[0].strip().lower(), "string")


def _estimated_cost(session: Session, sql: str) -> float:
    """What the optimizer expects, in its own units; nothing is run."""
    session.execute("SET SHOWPLAN_XML ON")
    session.rows()
    try:
        session.execute(sql)
        # In the plan the text of the query is an attribute, its quotes are escaped.
        found = _COST.search("".join(str(row[0]) for row in session.rows()))
    finally:
        session.execute("SET SHOWPLAN_XML OFF")
        session.rows()
    if found is None:
        raise QueryFailed("The database did not tell what the query would cost.")
    return float(found[1])
