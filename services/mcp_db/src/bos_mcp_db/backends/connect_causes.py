"""Why a connection failed, in words that are safe to show: without host, user or database."""

from __future__ import annotations

import socket
import ssl
from typing import Final

import asyncpg
from asyncmy.errors import MySQLError

_LOGIN: Final = "it refuses the user or the password"
_DATABASE: Final = "it has no database of that name, or none for this user"
_FULL: Final = "it takes no more connections for now"
_STARTING: Final = "it is starting or shutting down"
_NO_TLS: Final = "it offers no TLS (see encrypt and sslmode of the URL)"
_MYSQL: Final = {
    1044: _DATABASE,
    1045: _LOGIN,
    1049: _DATABASE,
    1040: _FULL,
    1203: _FULL,
    1226: _FULL,
    1053: _STARTING,
    1698: _LOGIN,
    3159: "it takes connections with TLS only",
}
"""Numbers of the server's errors, as the reference of MariaDB and MySQL lists them."""
_POSTGRES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (asyncpg.InvalidAuthorizationSpecificationError, _LOGIN),
    (asyncpg.InvalidCatalogNameError, _DATABASE),
    (asyncpg.InsufficientPrivilegeError, _DATABASE),
    (asyncpg.TooManyConnectionsError, _FULL),
    (asyncpg.CannotConnectNowError, _STARTING),
    (asyncpg.AdminShutdownError, _STARTING),
)
_NETWORK: Final[tuple[tuple[type[Exception], str], ...]] = (
    (ssl.SSLCertVerificationError, "its TLS certificate is not trusted"),
    (ssl.SSLError, "TLS cannot be agreed on with it"),
    (socket.gaierror, "its host name is not known"),
    (ConnectionRefusedError, "nothing listens at its address"),
    (FileNotFoundError, "nothing listens at its address"),
    (TimeoutError, "it did not answer in time"),
)


def connect_cause(error: BaseException | None) -> str:
    """Why a connection failed; empty if the error says nothing that is known here.

    Args:
        error: What the driver raised; what caused that is looked at as well.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if found := _cause(error):
            return found
        error = error.__cause__ or error.__context__
    return ""


def _cause(error: BaseException) -> str:
    for kind, words in (*_POSTGRES, *_NETWORK):
        if isinstance(error, kind):
            return words
    if isinstance(error, MySQLError) and error.args:
        return _MYSQL.get(error.args[0], "")
    if isinstance(error, ConnectionError) and "rejected SSL upgrade" in str(error):
        return _NO_TLS  # asyncpg has no class for it
    return ""
