"""Connections to PostgreSQL: a pool for queries, single ones for listening and writing."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from bos_chassis.tracing.queries import record_query
from bos_errors import ConfigurationError, DeadlineExceeded, Unavailable
from bos_postgres.dsn import check_identifier, describe, driver_dsn, password_source

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from asyncpg.pool import PoolConnectionProxy

    from bos_chassis.telemetry import Telemetry

    Session = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]

CONNECT_TIMEOUT_S: Final = 10.0
IDLE_TRANSACTION_S: Final = 30.0
# A client that is frozen, or that the network has swallowed, must not keep locks, a snapshot or its
# place in the queue of notifications: the server notices within half a minute and ends the session.
_KEEPALIVE: Final = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
    "tcp_user_timeout": "30000",
    "client_connection_check_interval": "10000",
}
_CLOSE_TIMEOUT_S: Final = 5.0
# Beyond the server's own time-out, so that a network that swallows packets hangs no caller.
_COMMAND_MARGIN_S: Final = 5.0

_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
)
_CONFUSED = (asyncpg.InterfaceError, asyncpg.InternalClientError)
_REFUSED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.ClientConfigurationError,
    asyncpg.UndefinedObjectError,  # an option in the URL that is not a setting of the server
    asyncpg.InvalidParameterValueError,
)


@asynccontextmanager
async def open_database(
    dsn: str,
    *,
    schema: str,
    min_size: int = 1,
    max_size: int = 10,
    statement_timeout_s: float = 30.0,
    application_name: str = "bos",
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    idle_transaction_s: float = IDLE_TRANSACTION_S,
    role: str | None = None,
    stateless: bool = False,
    telemetry: Telemetry | None = None,
) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    """A pool whose connections see ``schema`` only; closed, with its connections, at the end.

    Take connections with :func:`acquire`, which bounds the wait and translates failures.

    Args:
        dsn: PostgreSQL URL.
        schema: The one schema on the search path; it need not exist yet.
        min_size: Connections opened at once and kept.
        max_size: Upper bound of connections.
        statement_timeout_s: After this the server cancels a statement; 0 for never.
        application_name: Shown in ``pg_stat_activity``.
        connect_timeout_s: Bound for opening a connection.
        idle_transaction_s: The server ends a session that leaves a transaction open this long.
        role: Role of the sessions instead of the URL's own, which must be a member of it.
        stateless: No user of the pool leaves anything behind in a session: no setting but with SET
            LOCAL, no session lock, no LISTEN. It is not reset then, which is a round trip and a
            transaction for every use; open transactions are rolled back all the same.
        telemetry: Of the service, for a span of each statement that is part of a trace; None for
            none.

    Raises:
        Unavailable: The server cannot be reached; the message names host and database.
        ConfigurationError: The URL is unusable, or the server refuses user, password or database.
    """
    settings = _server_settings(application_name, schema, statement_timeout_s, idle_transaction_s)
    if role is not None:
        settings["role"] = check_identifier(role, "The role name")
    with connection_errors(dsn):
        pool = await asyncpg.create_pool(
            driver_dsn(dsn),
            password=password_source(dsn),
            min_size=min_size,
            max_size=max_size,
            timeout=connect_timeout_s,
            command_timeout=_command_timeout(statement_timeout_s),
            server_settings=settings,
            reset=_nothing_to_reset if stateless else None,
            init=None if telemetry is None else _traced(telemetry),
        )
    try:
        yield pool
    finally:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await pool.close()
        except TimeoutError:
            pool.terminate()


def _traced(telemetry: Telemetry) -> Callable[[Any], Coroutine[Any, Any, None]]:
    """What gives the statements of a new connection their spans."""

    def ended(query: Any) -> None:
        record_query(telemetry, "postgresql", query.query, query.elapsed, query.exception)

    async def prepared(connection: Any) -> None:
        # Called in the context of the statement, once it has ended.
        connection.add_query_logger(ended)

    return prepared


@asynccontextmanager
async def acquire(
    pool: asyncpg.Pool[asyncpg.Record], *, timeout_s: float = 5.0
) -> AsyncIterator[PoolConnectionProxy[asyncpg.Record]]:
    """A connection of the pool for the length of the block.

    Raises:
        Unavailable: None became free or could be opened within ``timeout_s`` (reason
            ``DATABASE_BUSY``), or the server went away (``DATABASE_UNAVAILABLE``).
        DeadlineExceeded: A statement ran into the statement time-out.
    """
    try:
        connection = await pool.acquire(timeout=timeout_s)
    except TimeoutError as error:
        raise Unavailable(
            f"No database connection became free within {timeout_s:g} s.",
            reason="DATABASE_BUSY",
            retry_after_s=1.0,
        ) from error
    except (OSError, *_LOST, *_REFUSED) as error:
        # A password that was changed while the process runs is away like everything else.
        raise _unavailable("The database") from error
    try:
        with statement_errors(connection):
            yield connection
    finally:
        # The pool closes a connection that it cannot reset; what was done with it stays done.
        with contextlib.suppress(OSError, *_CONFUSED, asyncpg.PostgresError):
            await pool.release(connection, timeout=_CLOSE_TIMEOUT_S)


@asynccontextmanager
async def connect(
    dsn: str,
    *,
    application_name: str = "bos",
    schema: str | None = None,
    statement_timeout_s: float = 30.0,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    idle_transaction_s: float = IDLE_TRANSACTION_S,
    on_lost: Callable[[], None] | None = None,
) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """One connection of one's own, for what must stay on one session (LISTEN, locks, a writer).

    Args:
        dsn: PostgreSQL URL.
        application_name: Shown in ``pg_stat_activity``.
        schema: The one schema on the search path, or None for the server's default path.
        statement_timeout_s: After this the server cancels a statement; 0 for never.
        connect_timeout_s: Bound for opening the connection.
        idle_transaction_s: The server ends a session that leaves a transaction open this long.
        on_lost: Called once, from the event loop, when the session ends for any reason.

    Raises:
        Unavailable: The server cannot be reached; the message names host and database.
        ConfigurationError: The URL is unusable, or the server refuses user, password or database.
    """
    with connection_errors(dsn):
        connection = await asyncpg.connect(
            driver_dsn(dsn),
            password=password_source(dsn),
            timeout=connect_timeout_s,
            command_timeout=_command_timeout(statement_timeout_s),
            server_settings=_server_settings(
                application_name, schema, statement_timeout_s, idle_transaction_s
            ),
        )
    if on_lost is not None:
        connection.add_termination_listener(lambda _: on_lost())
    try:
        yield connection
    finally:
        with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError):
            await connection.close(timeout=_CLOSE_TIMEOUT_S)


@contextmanager
def connection_errors(dsn: str) -> Iterator[None]:
    """Translate failures to open a connection; the messages name host and database only."""
    try:
        yield
    except _REFUSED as error:
        raise ConfigurationError(
            f"The database {describe(dsn)} refuses the connection: "
            "check user, password, database name and options in its URL."
        ) from error
    except asyncpg.ProtocolViolationError as error:
        raise ConfigurationError(
            f"Something in front of the database {describe(dsn)} refuses settings of a session, "
            "as connection poolers do. Connect to PostgreSQL directly.",
            reason="DATABASE_POOLER",
        ) from error
    except (OSError, *_LOST) as error:  # TimeoutError is an OSError
        raise _unavailable(f"The database {describe(dsn)}") from error


@contextmanager
def statement_errors(connection: Session | None = None) -> Iterator[None]:
    """Translate failures of the session or of time; errors in SQL stay asyncpg's.

    Args:
        connection: The connection in use, so that its loss between statements is seen as well.

    Raises:
        Unavailable: The session was lost, or the server did not answer at all.
        DeadlineExceeded: The server cancelled a statement for its time-out.
    """
    try:
        yield
    except asyncpg.QueryCanceledError as error:
        raise DeadlineExceeded("A database statement took too long and was cancelled.") from error
    except (OSError, *_LOST) as error:  # TimeoutError is an OSError: nothing came back
        raise _unavailable("The database") from error
    except _CONFUSED as error:
        # A lost connection and a wrong call look alike; only the connection itself knows.
        if connection is None or not _is_lost(connection):
            raise
        raise _unavailable("The database") from error


async def _nothing_to_reset(_connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """In the place of asyncpg's RESET ALL; it has rolled back what was open before this."""


def _is_lost(connection: Session) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:  # a pooled connection that was lost is detached at once
        return True


def _unavailable(what: str) -> Unavailable:
    return Unavailable(
        f"{what} cannot be reached.", reason="DATABASE_UNAVAILABLE", retry_after_s=1.0
    )


def _command_timeout(statement_timeout_s: float) -> float | None:
    return statement_timeout_s + _COMMAND_MARGIN_S if statement_timeout_s else None


def _server_settings(
    application_name: str,
    schema: str | None,
    statement_timeout_s: float,
    idle_transaction_s: float,
) -> dict[str, str]:
    settings = {
        "application_name": application_name,
        "statement_timeout": str(round(statement_timeout_s * 1000)),
        "idle_in_transaction_session_timeout": str(round(idle_transaction_s * 1000)),
        **_KEEPALIVE,
        "jit": "off",  # compiles for longer than our short statements run
        "timezone": "UTC",
    }
    if schema is not None:
        settings["search_path"] = check_identifier(schema, "The schema name")
    return settings
