"""MySQL and MariaDB: the administrator who makes the user, and the user that is tried."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from asyncmy.errors import MySQLError

from bos_errors import FailedPrecondition
from bos_mcp_db.backends.mysql.session import connect, parse_address, run
from bos_mcp_db.backends.password_file import password_source
from bos_mcp_db.connecting.roles.sessions import Outcome
from bos_mcp_db.connecting.texts import one_line
from bos_mcp_db.failures import DatabaseUnavailable

_TIMEOUT_S: Final = 20.0
# No right to a table, column, database, routine, or to something of an administrator.
_REFUSED: Final = frozenset({1044, 1142, 1143, 1227, 1370})
# The script ends its statements so, and the names in it hold neither.
_END: Final = ";\n"
_TABLE_RIGHTS = "SELECT table_schema, table_name, privilege_type FROM information_schema.{}"
_RIGHTS = "SELECT privilege_type FROM information_schema.user_privileges"
_SCHEMA_RIGHTS = "SELECT table_schema, privilege_type FROM information_schema.schema_privileges"


class MySqlSession:
    """See :class:`~bos_mcp_db.connecting.roles.sessions.RoleSession`, and ``Administrator``."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def has_role(self, role: str) -> bool:
        """Whether there is a user of this name at all hosts."""
        try:
            rows = await self._rows(
                "SELECT 1 FROM mysql.user WHERE user = %s AND host = '%%'", role
            )
        except MySQLError as error:
            raise FailedPrecondition(
                f"Users cannot be listed by this login, which is no administrator: {_text(error)}"
            ) from None
        return bool(rows)

    async def provision(self, script: str, role: str, password: str) -> None:
        """Run the script, statement by statement: the server does not undo one that worked."""
        unlock = f"ALTER USER '{role}'@'%' IDENTIFIED BY {_literal(password)} ACCOUNT UNLOCK"
        try:
            for statement in (*filter(str.strip, script.split(_END)), unlock):
                await _run(self._connection, statement)
        except MySQLError as error:
            raise FailedPrecondition(
                f"The script of the role failed: {_text(error)}. Until it has a password, a new"
                " user is locked."
            ) from None

    async def attempt(self, sql: str) -> Outcome:
        """In a transaction that may write, as far as the user's own rights go."""
        await _run(self._connection, "START TRANSACTION")
        try:
            await _run(self._connection, sql)
        except MySQLError as error:
            code = error.args[0] if error.args else 0
            return Outcome("refused" if code in _REFUSED else "failed", _text(error))
        finally:
            await _run(self._connection, "ROLLBACK")
        return Outcome("done")

    async def surplus(self, granted: frozenset[tuple[str, str]]) -> list[str]:
        """Rights of the user beyond ``SELECT`` on the tables in ``granted``."""
        found = []
        for (right,) in await self._rows(_RIGHTS):
            if right.upper() != "USAGE":
                found.append(f"it has {right} everywhere")
        for schema, right in await self._rows(_SCHEMA_RIGHTS):
            found.append(f"it has {right} in database {one_line(schema)}")
        for kind in ("table_privileges", "column_privileges"):
            for schema, table, right in await self._rows(_TABLE_RIGHTS.format(kind)):
                if right.upper() != "SELECT" or (schema, table) not in granted:
                    found.append(f"it has {right} on {one_line(f'{schema}.{table}')}")
        return found

    async def _rows(self, sql: str, *values: str) -> list[Any]:
        cursor = self._connection.cursor()
        async with asyncio.timeout(_TIMEOUT_S):
            await cursor.execute(sql, values or None)
            return list(await cursor.fetchall())


@asynccontextmanager
async def mysql_session(url: str) -> AsyncIterator[MySqlSession]:
    """A session of the login in ``url``.

    Raises:
        DatabaseUnavailable: no connection, or it ended.
        FailedPrecondition: the server refused something that is no attempt.
    """
    rest, password = password_source(url, "connect")
    connection = await connect(parse_address(rest, password))
    try:
        await _run(connection, "SET SESSION sql_mode = '', lock_wait_timeout = 5")
        yield MySqlSession(connection)
    except (OSError, RuntimeError, TimeoutError):
        raise DatabaseUnavailable from None
    except MySQLError as error:
        raise FailedPrecondition(f"The database refused: {_text(error)}") from None
    finally:
        connection.close()


async def _run(connection: Any, statement: str) -> None:
    async with asyncio.timeout(_TIMEOUT_S):
        await run(connection, statement)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _text(error: MySQLError) -> str:
    return one_line(str(error.args[1]) if len(error.args) > 1 else "the database refused")
