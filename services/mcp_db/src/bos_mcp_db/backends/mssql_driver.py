"""The SQL Server driver (python-tds), which is optional: where URLs become sessions."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from bos_mcp_db.backends.mssql_session import ServerError
from bos_mcp_db.backends.mssql_wire import (
    ConnectionFailed,
    TooManyBytes,
    Wire,
    connect,
    tls_context,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Sequence

    from bos_mcp_db.backends.blocking import Clock
    from bos_mcp_db.backends.mssql_session import OpenSession, Session

_CONNECT_TIMEOUT_S = 5.0
_DEFAULT_PORT = 1433
# The driver repeats failed logins until this is over; the wire's clock bounds the one attempt.
_NO_SECOND_ATTEMPT_S = 0.001


@dataclass(frozen=True, slots=True)
class MssqlAddress:
    """Parts of ``mssql://user:password@host:1433/database``. ``tls`` None: not encrypted."""

    host: str
    port: int
    database: str
    user: str
    password: Callable[[], str] = field(repr=False)
    """Asked with each connection."""
    tls: ssl.SSLContext | None = field(repr=False)


def parse_address(url: str, password: Callable[[], str] | None = None) -> MssqlAddress:
    """Return the parts of ``url``; ``?ca_file=…`` and ``?encrypt=no`` are its options.

    Args:
        url: Of the database.
        password: What gives the password, if the URL does not hold it.

    Raises:
        ValueError: something is missing or unknown; the message says what, without the URL.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or _DEFAULT_PORT
    except ValueError:
        raise ValueError("the port must be a number") from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    encrypt, ca_file = options.pop("encrypt", "yes"), options.pop("ca_file", None)
    if options or encrypt not in ("yes", "no"):
        raise ValueError("the only options are encrypt=yes, encrypt=no and ca_file=/path")
    database = unquote(parts.path.removeprefix("/"))
    if not (parts.hostname and database and parts.username and (parts.password or password)):
        raise ValueError("write mssql://user:password@host:1433/database")
    try:
        tls = tls_context(ca_file) if encrypt == "yes" else None
    except OSError:
        raise ValueError("ca_file is not a file of certificates in PEM format") from None
    return MssqlAddress(
        host=parts.hostname,
        port=port,
        database=database,
        user=unquote(parts.username),
        password=password or partial(unquote, parts.password or ""),
        tls=tls,
    )


def driver_installed() -> bool:
    """Whether the extra ``bos-mcp-db[mssql]`` is there."""
    return find_spec("pytds") is not None


def session_opener(address: MssqlAddress) -> OpenSession:
    """Return what opens sessions with ``address``."""

    @contextlib.contextmanager
    def open_session(clock: Clock) -> Iterator[Session]:
        wire = connect(address.host, address.port, clock, address.tls, timeout_s=_CONNECT_TIMEOUT_S)
        with contextlib.closing(wire):
            yield _Session(wire, _log_in(wire, address))

    return open_session


def _log_in(wire: Wire, address: MssqlAddress) -> Any:
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
        _told(lambda: self._cursor.execute(sql))

    def row(self) -> Sequence[Any] | None:
        if self._cursor.description is None:
            return None
        row: Sequence[Any] | None = _told(self._cursor.fetchone)
        return row

    def rows(self) -> list[Sequence[Any]]:
        if self._cursor.description is None:
            return []
        rows: list[Sequence[Any]] = _told(self._cursor.fetchall)
        return rows

    def allow(self, received: int) -> None:
        self._wire.allow(received)

    def stop(self, clock: Clock) -> None:
        self._wire.replace_clock(clock)
        _told(self._cursor.cancel)


def _told(work: Callable[[], Any]) -> Any:
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
