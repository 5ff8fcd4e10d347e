"""Reading and changing PostgreSQL URLs without ever showing a password."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, quote, urlencode, urlsplit, urlunsplit

from bos_chassis.credentials.watched_files import read_secret, secret_file
from bos_errors import ConfigurationError

PASSWORD_FILE: Final = "password_file"  # noqa: S105  The name of an option.
"""Our own option of a URL: a file whose text is the password, and may change under way."""

_SCHEMES = ("postgresql", "postgres")
# Options of libpq's client side. Drivers other than libpq would send them to the server, which
# refuses what is not a setting of its own.
_LIBPQ_ONLY = frozenset(
    {
        *("connect_timeout", "channel_binding", "gssencmode", "fallback_application_name"),
        *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"),
        *("tcp_user_timeout", "sslcompression", "sslsni", "load_balance_hosts"),
    }
)
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_FORM = "postgresql://user:password@host:5432/database or postgresql://user@/database?host=/folder"


def check_dsn(dsn: str) -> str:
    """Return ``dsn`` if it is a PostgreSQL URL.

    Raises:
        ConfigurationError: It is something else. The message never repeats it.
    """
    try:
        parts = urlsplit(dsn)
        # A port that is no number shows only when it is asked for. Several hosts are libpq's
        # own extension of URLs, which urlsplit cannot read; the drivers can.
        if "," not in parts.netloc:
            _ = parts.port
    except ValueError:
        raise ConfigurationError(f"The database URL cannot be read; write {_FORM}.") from None
    if parts.scheme not in _SCHEMES:
        raise ConfigurationError(f"The database URL must be of the form {_FORM}.")
    return dsn


def describe(dsn: str) -> str:
    """``host:port/database`` for messages and logs: no user, no password, no options."""
    parts = urlsplit(check_dsn(dsn))
    query = parse_qs(parts.query)
    host = query["host"][0] if "host" in query else parts.netloc.rpartition("@")[2]
    return f"{host or 'localhost'}/{database_name(dsn)}"


def database_name(dsn: str) -> str:
    """Name of the database in ``dsn``, or the empty string where it is left to the server."""
    parts = urlsplit(check_dsn(dsn))
    query = parse_qs(parts.query)
    return query["dbname"][0] if "dbname" in query else parts.path.removeprefix("/")


def with_database(dsn: str, name: str) -> str:
    """The same server, user and options, another database."""
    query = {k: v for k, v in parse_qs(urlsplit(check_dsn(dsn)).query).items() if k != "dbname"}
    parts = urlsplit(dsn)._replace(path=f"/{quote(name, safe='')}", query=encode_query(query))
    return _join(parts.scheme, parts.netloc, parts.path, parts.query)


def with_options(dsn: str, **options: str) -> str:
    """``dsn`` with query options set or replaced."""
    parts = urlsplit(check_dsn(dsn))
    query = parse_qs(parts.query) | {key: [value] for key, value in options.items()}
    return _join(parts.scheme, parts.netloc, parts.path, encode_query(query))


def driver_dsn(dsn: str) -> str:
    """``dsn`` without the options that drivers do not know; our own arguments replace them."""
    parts = urlsplit(check_dsn(dsn))
    ours = _LIBPQ_ONLY | {PASSWORD_FILE}
    query = {k: v for k, v in parse_qs(parts.query).items() if k not in ours}
    return _join(parts.scheme, parts.netloc, parts.path, encode_query(query))


def has_several_hosts(dsn: str) -> bool:
    """Whether ``dsn`` names several servers, of which one is taken."""
    return "," in urlsplit(check_dsn(dsn)).netloc or "," in (option(dsn, "host") or "")


def with_address(dsn: str, address: str | tuple[str, int]) -> str:
    """``dsn`` for one server: its host and port, or the path of its socket."""
    parts = urlsplit(check_dsn(dsn))
    query = {k: v for k, v in parse_qs(parts.query).items() if k not in ("host", "port")}
    login, at, _ = parts.netloc.rpartition("@")
    if isinstance(address, str):
        folder, _, port = address.rpartition("/.s.PGSQL.")
        query |= {"host": [folder], "port": [port]}
        place = ""
    else:
        host, port_number = address
        place = f"[{host}]:{port_number}" if ":" in host else f"{host}:{port_number}"
    return _join(parts.scheme, f"{login}{at}{place}", parts.path, encode_query(query))


def option(dsn: str, name: str) -> str | None:
    """Value of one query option of ``dsn``."""
    values = parse_qs(urlsplit(check_dsn(dsn)).query).get(name)
    return values[0] if values else None


def password_of(dsn: str) -> str | None:
    """The password as written in ``dsn`` (still percent-encoded), to keep it out of messages."""
    return urlsplit(check_dsn(dsn)).password or option(dsn, "password")


def password_source(dsn: str) -> Callable[[], str] | None:
    """Source of the password of each new connection; None if the URL names no file of it.

    A file that is being replaced gives what it gave before.

    Raises:
        ConfigurationError: The file is not usable, or the URL holds a password beside it.
    """
    path = _password_file(dsn)
    if path is None:
        return None
    # Looked at with each connection: those are rare, and the password may have changed just now.
    return secret_file(path, _what(dsn), str).look


def with_password(dsn: str) -> str:
    """``dsn`` with the password of its file, for a program that is handed a whole URL.

    Raises:
        ConfigurationError: The file is not usable, or the URL holds a password beside it.
    """
    path = _password_file(dsn)
    if path is None:
        return dsn
    query = parse_qs(urlsplit(dsn).query)
    del query[PASSWORD_FILE]
    query["password"] = [read_secret(path, _what(dsn))]
    parts = urlsplit(dsn)
    return _join(parts.scheme, parts.netloc, parts.path, encode_query(query))


def _password_file(dsn: str) -> Path | None:
    file = option(dsn, PASSWORD_FILE)
    if file is None:
        return None
    if password_of(dsn):
        raise ConfigurationError(
            f"The URL of the database {describe(dsn)} holds a password and a {PASSWORD_FILE}; "
            "remove one of them."
        )
    return Path(file)


def _what(dsn: str) -> str:
    return f"{PASSWORD_FILE} of the database {describe(dsn)}"


def check_identifier(name: str, what: str) -> str:
    """Return ``name`` if it needs no quoting anywhere.

    Raises:
        ConfigurationError: It is not lower-case letters, digits and underscores, at most 63.
    """
    if not _IDENTIFIER.fullmatch(name):
        raise ConfigurationError(
            f"{what} {name!r} is not usable: write lower-case letters, digits and underscores, "
            "beginning with a letter, at most 63."
        )
    return name


def encode_query(query: dict[str, list[str]]) -> str:
    """Query part with spaces as %20, which both drivers read the same way."""
    return urlencode(query, doseq=True, quote_via=quote)


def _join(scheme: str, netloc: str, path: str, query: str) -> str:
    # urlunsplit drops the slashes of an empty authority, and "postgresql:/db" is not a URL of ours.
    if netloc:
        return urlunsplit((scheme, netloc, path, query, ""))
    return f"{scheme}://{path}" + (f"?{query}" if query else "")
