"""Sessions of MySQL and MariaDB (asyncmy): where URLs become connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncmy
from asyncmy.constants.CLIENT import MULTI_STATEMENTS
from asyncmy.errors import MySQLError

from bos_mcp_db.backends.server_address import ServerAddress, parse_server_address
from bos_mcp_db.failures import DatabaseUnavailable

CONNECT_TIMEOUT_S = 5.0
_DEFAULT_PORT = 3306
# Far above any result: what a query may keep in the server's memory.
_SESSION_BYTES = 256 * 1024 * 1024
_ENDLESS = 2**32 - 1

# Letters, quotes and zones read as the guard read them, regardless of the server's defaults: in
# some alphabets a backslash is the second half of a letter.
_SESSION = """\
SET SESSION
    sql_mode = 'ONLY_FULL_GROUP_BY,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION',
    character_set_client = utf8mb4,
    character_set_connection = utf8mb4,
    character_set_results = utf8mb4,
    time_zone = '+00:00',
    autocommit = 0,
    lock_wait_timeout = 2,
    innodb_lock_wait_timeout = 2,
    sql_select_limit = DEFAULT,
    {limits}"""
_READ_ONLY = "SET SESSION TRANSACTION READ ONLY"
_BEGIN = "START TRANSACTION READ ONLY"


def parse_address(url: str, password: Callable[[], str] | None = None) -> ServerAddress:
    """Return the parts of ``mysql://user:password@host/database``, with the options of servers.

    Args:
        url: Of the database.
        password: What gives the password, if the URL does not hold it.

    Raises:
        ValueError: something is missing or unknown; the message says what, without the URL.
    """
    return parse_server_address(
        url, password, scheme="mysql", default_port=_DEFAULT_PORT, tls_context=_tls_context
    )


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)


@asynccontextmanager
async def read_only_session(
    address: ServerAddress, timeout_s: float
) -> AsyncIterator[asyncmy.Connection]:
    """A session of its own inside a read-only transaction; the server rolls back at its end.

    Args:
        address: Of the database.
        timeout_s: After which the server stops a statement.

    Raises:
        DatabaseUnavailable: no connection.
    """
    connection = await connect(address)
    try:
        try:
            for statement in (_SESSION.format(limits=_limits(connection, timeout_s)), _READ_ONLY):
                await run(connection, statement)
            await run(connection, _BEGIN)
        except (MySQLError, OSError):
            raise DatabaseUnavailable from None
        yield connection
    finally:
        connection.close()


async def connect(address: ServerAddress) -> asyncmy.Connection:
    """Open a session that takes one statement at a time and reads no files for the server.

    Raises:
        DatabaseUnavailable: no connection.
    """
    open_connection: Any = asyncmy.Connection
    connection: Any = open_connection(
        host=address.host,
        port=address.port,
        user=address.user,
        password=address.password(),
        db=address.database,
        charset="utf8mb4",
        ssl=address.tls,
        connect_timeout=CONNECT_TIMEOUT_S,
        autocommit=None,
        local_infile=False,
        program_name="bos-mcp-db",
    )
    # asyncmy asks for several statements in one text, and has no option for that.
    connection._client_flag &= ~MULTI_STATEMENTS
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await connection.connect()
    except (MySQLError, OSError, RuntimeError, ValueError):
        # Such errors name hosts, users and databases.
        raise DatabaseUnavailable from None
    return cast("asyncmy.Connection", connection)


async def run(connection: Any, statement: str) -> None:
    """Run a statement of this service's own.

    Raises:
        MySQLError: the server refused it, or is gone.
    """
    await connection.query(statement)


def _limits(connection: asyncmy.Connection, timeout_s: float) -> str:
    """Limits that MariaDB and MySQL call differently, and MariaDB's of memory.

    Both stop recursion after 1,000 steps, MariaDB in silence; here time is the limit.
    """
    if "MariaDB" in connection.get_server_info():
        return (
            f"max_statement_time = {max(0.001, timeout_s):.3f},"
            f" max_session_mem_used = {_SESSION_BYTES}, max_recursive_iterations = {_ENDLESS}"
        )
    milliseconds = max(1, int(timeout_s * 1000))
    return f"max_execution_time = {milliseconds}, cte_max_recursion_depth = {_ENDLESS}"
