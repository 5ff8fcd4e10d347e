"""The SQL Server driver (python-tds), which is optional: where URLs become sessions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from bos_mcp_db.backends.blocking import Clock
from bos_mcp_db.backends.mssql_session import OpenSession, ServerError, Session
from bos_mcp_db.backends.mssql_wire import (
    ConnectionFailed,
    TooManyBytes,
    Wire,
    connect,
    tls_context,
)
from bos_mcp_db.backends.server_address import ServerAddress, parse_server_address

_CONNECT_TIMEOUT_S = 5.0
_DEFAULT_PORT = 1433
# The driver repeats failed logins until this is over; the wire's clock bounds the one attempt.
_NO_SECOND_ATTEMPT_S = 0.001


def parse_address(url: str, password: Callable[[], str] | None = None) -> ServerAddress:
    """Return the parts of ``mssql://user:password@host/database``, with the options of servers.

    Args:
        url: Of the database.
        password: What gives the password, if the URL does not hold it.

    Raises:
        ValueError: something is missing or unknown; the message says what, without the URL.
    """
    return parse_server_address(
        url, password, scheme="mssql", default_port=_DEFAULT_PORT, tls_context=tls_context
    )


def driver_installed() -> bool:
    """Whether the extra ``bos-mcp-db[mssql]`` is there."""
    return find_spec("pytds") is not None


def session_opener(address: ServerAddress) -> OpenSession:
    """Return what opens sessions with ``address``."""

    @contextlib.contextmanager
    def open_session(clock: Clock) -> Iterator[Session]:
        wire = connect(address.host, address.port, clock, address.tls, timeout_s=_CONNECT_TIMEOUT_S)
        with contextlib.closing(wire):
            yield _Session(wire, _log_in(wire, address))

    return open_session


def _log_in(wire: Wire, address: ServerAddress) -> Any:
    import pytds  # type: ignore[import-untyped]

    try:
        return pytds.connect(
            dsn=address.host,
            port=address.port,
            database=address.database,
            user=address.user,
            password=address.password(),
            appname="bos-mcp-db",
            autocommit=True,
            # Asks a cluster for a readable secondary; it protects nothing.
            readonly=True,
            login_timeout=_NO_SECOND_ATTEMPT_S,
            disable_connect_retry=True,
            sock=wire,
        )
    except Exception:
        # Such errors name hosts, users and databases.
        raise ConnectionFailed from None


class _Session:
    """A session of the driver; see :class:`~bos_mcp_db.backends.mssql_session.Session`."""

    def __init__(self, wire: Wire, connection: Any) -> None:
        self._wire = wire
        self._cursor = connection.cursor()

    def execute(self, sql: str) -> None:
        _translated(lambda: self._cursor.execute(sql))

    def row(self) -> Sequence[Any] | None:
        if self._cursor.description is None:
            return None
        row: Sequence[Any] | None = _translated(self._cursor.fetchone)
        return row

    def rows(self) -> list[Sequence[Any]]:
        if self._cursor.description is None:
            return []
        rows: list[Sequence[Any]] = _translated(self._cursor.fetchall)
        return rows

    def allow(self, received: int) -> None:
        self._wire.allow(received)

    def stop(self, clock: Clock) -> None:
        self._wire.replace_clock(clock)
        _translated(self._cursor.cancel)


def _translated(work: Callable[[], Any]) -> Any:
    """Do ``work``, and translate its errors."""
    import pytds

    try:
        return work()
    except (TimeoutError, ConnectionFailed, TooManyBytes):
        raise
    except pytds.DatabaseError as error:
        raise ServerError(int(error.number), str(error.text)) from None
    except (pytds.Error, OSError):
        raise ConnectionFailed from None
    except UnicodeError:
        raise ServerError(0, "The query has a value of a type that cannot be read.") from None
