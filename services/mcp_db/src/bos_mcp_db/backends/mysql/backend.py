"""MySQL and MariaDB: a session of its own per query, read-only, under the server's clock."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from asyncmy.constants import FIELD_TYPE
from asyncmy.cursors import SSCursor
from asyncmy.errors import MySQLError

from bos_errors import BosError
from bos_mcp_db.backends.backend import ColumnType, Result, refuse_role
from bos_mcp_db.backends.mysql.schema import describe_tables, listed_tables
from bos_mcp_db.backends.mysql.session import connect, read_only_session, run
from bos_mcp_db.backends.rows import RowCollector, check_columns, clock
from bos_mcp_db.failures import DatabaseUnavailable, QueryFailed, QueryTimedOut

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import asyncmy

    from bos_mcp_db.backends.backend import Limits, TableInfo
    from bos_mcp_db.backends.server_address import ServerAddress
    from bos_sqlguard import Dialect, Kept

_ROWS_PER_FETCH = 200
_CATALOG_TIMEOUT_S = 10.0
# The server stops the query; the client only steps in if the server does not answer.
_CLIENT_SLACK_S = 2.0
_KILL_TIMEOUT_S = 5.0

# ER_STATEMENT_TIMEOUT of MariaDB, ER_QUERY_TIMEOUT of MySQL, ER_QUERY_INTERRUPTED of both.
_STOPPED = frozenset({1969, 3024, 1317})
# The server ends the session, or goes down; below 2100: it is gone.
_GOING_AWAY = frozenset({1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1927, 4031})
_CLIENT_ERRORS = range(2000, 2100)
# Who the session is stands in what the server says of rights.
_ACCOUNT = re.compile(r" (?:to|for|by) (?:user )?'[^']*'@'[^']*'")

_TYPES: dict[int, ColumnType] = {
    FIELD_TYPE.TINY: "int64",
    FIELD_TYPE.SHORT: "int64",
    FIELD_TYPE.INT24: "int64",
    FIELD_TYPE.LONG: "int64",
    FIELD_TYPE.LONGLONG: "int64",
    FIELD_TYPE.YEAR: "int64",
    FIELD_TYPE.FLOAT: "double",
    FIELD_TYPE.DOUBLE: "double",
    FIELD_TYPE.DECIMAL: "decimal",
    FIELD_TYPE.NEWDECIMAL: "decimal",
    FIELD_TYPE.DATE: "date",
    FIELD_TYPE.NEWDATE: "date",
    FIELD_TYPE.DATETIME: "timestamp",
    FIELD_TYPE.TIMESTAMP: "timestamp",
    FIELD_TYPE.BIT: "int64",
    FIELD_TYPE.GEOMETRY: "bytes",
}


class _Rows(SSCursor):
    """Rows as they come; the server's warnings hold values, which asyncmy would log."""

    async def _show_warnings(self, conn: object) -> None:
        pass


class MySqlBackend:
    """Adapter for one MySQL or MariaDB database."""

    dialect: Dialect = "mysql"

    def __init__(self, address: ServerAddress, *, default_schema: str) -> None:
        """Read the database at ``address``; nothing is connected before the first query."""
        self.default_schema = default_schema
        self._address = address
        self._kills: set[asyncio.Task[None]] = set()

    def reading(self, tables: Sequence[str], role: str) -> MySqlBackend:
        """See :class:`~bos_mcp_db.backends.backend.Backend`; the guard alone limits the tables."""
        refuse_role(role)
        return self

    async def query(self, sql: str, limits: Limits, kept: Kept | None = None) -> Result:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        async with self._reading(limits.timeout_s) as connection:
            return await _fetch(connection, sql, limits)

    async def listed(self) -> list[tuple[str, str]]:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        async with self._reading(_CATALOG_TIMEOUT_S) as connection:
            return await listed_tables(partial(_read, connection), self.default_schema)

    async def view_sources(self) -> None:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""

    async def describe(self, tables: Sequence[str]) -> list[TableInfo]:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        async with self._reading(_CATALOG_TIMEOUT_S) as connection:
            return await describe_tables(partial(_read, connection), tables, self.default_schema)

    async def aclose(self) -> None:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        await asyncio.gather(*self._kills, return_exceptions=True)

    @asynccontextmanager
    async def _reading(self, timeout_s: float) -> AsyncIterator[asyncmy.Connection]:
        """A read-only session; its query is stopped, however the block ends before its result."""
        try:
            async with (
                asyncio.timeout(timeout_s + _CLIENT_SLACK_S),
                read_only_session(self._address, timeout_s) as connection,
            ):
                try:
                    yield connection
                except MySQLError:
                    raise  # the server has ended the query itself
                except BaseException:
                    self._stop(connection.thread_id())
                    raise
        except TimeoutError:
            raise QueryTimedOut(timeout_s) from None
        except MySQLError as error:
            raise _translate(error, timeout_s) from None
        except OSError:
            raise DatabaseUnavailable from None

    def _stop(self, thread: int) -> None:
        """Have the server stop a query: it notices a closed connection only when it sends rows."""
        kill = asyncio.create_task(self._kill(thread), name="mcp_db kill")
        self._kills.add(kill)
        kill.add_done_callback(self._kills.discard)

    async def _kill(self, thread: int) -> None:
        # Where it cannot be stopped, its time limit stops it.
        with suppress(TimeoutError, MySQLError, OSError, BosError):
            async with asyncio.timeout(_KILL_TIMEOUT_S):
                connection = await connect(self._address)
                try:
                    await run(connection, f"KILL {int(thread)}")
                finally:
                    connection.close()


async def _read(
    connection: asyncmy.Connection, sql: str, names: Sequence[Any]
) -> Sequence[Sequence[Any]]:
    cursor = connection.cursor(_Rows)
    await cursor.execute(sql, names)
    rows: Sequence[Sequence[Any]] = await cursor.fetchall()
    return rows


async def _fetch(connection: asyncmy.Connection, sql: str, limits: Limits) -> Result:
    cursor = connection.cursor(_Rows)
    await cursor.execute(sql)
    described = cursor.description
    if described is None:
        raise QueryFailed("The statement returns no rows; only SELECT queries are run.")
    check_columns(len(described), limits)
    collector = RowCollector(limits)
    codes = [column[1] for column in described]
    while collector.wanted > 0:
        asked = min(collector.wanted, _ROWS_PER_FETCH)
        batch = await cursor.fetchmany(asked)
        collector.add(
            [_cell(value, code) for value, code in zip(row, codes, strict=True)] for row in batch
        )
        if len(batch) < asked:
            break
    return Result(
        columns=[column[0] for column in described],
        types=[
            _column_type(column[1], [row[place] for row in collector.rows])
            for place, column in enumerate(described)
        ],
        rows=collector.rows,
        truncated=collector.truncated,
    )


def _cell(value: Any, code: int) -> Any:
    """A value as a cell: a ``TIME`` as the server writes it, a ``BIT`` as its number."""
    if isinstance(value, timedelta):
        ahead = abs(value)
        seconds, fraction = ahead.days * 86_400 + ahead.seconds, ahead.microseconds
        sign = "-" if value < timedelta() else ""
        return f"{sign}{clock(seconds)}" + (f".{fraction:06}" if fraction else "")
    return int.from_bytes(value) if code == FIELD_TYPE.BIT and isinstance(value, bytes) else value


def _column_type(code: int, cells: Sequence[Any]) -> ColumnType:
    """The type of a column. Texts and bytes have the same codes; the cells tell them apart."""
    if (known := _TYPES.get(code)) is not None:
        return known
    return "bytes" if any(isinstance(cell, bytes) for cell in cells) else "string"


def _translate(error: MySQLError, timeout_s: float) -> Exception:
    code, text = (*error.args, "", "")[:2]
    if code in _STOPPED:
        return QueryTimedOut(timeout_s)
    if not isinstance(code, int) or code in _CLIENT_ERRORS or code in _GOING_AWAY:
        return DatabaseUnavailable()
    message = _ACCOUNT.sub("", str(text))
    return QueryFailed(message or "The database could not run the query.", str(code))
