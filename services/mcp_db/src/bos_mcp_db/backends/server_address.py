"""URLs of database servers that are reached over TLS: SQL Server, MySQL, MariaDB."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Parts of ``scheme://user:password@host:port/database``. ``tls`` None: not encrypted."""

    host: str
    port: int
    database: str
    user: str
    password: Callable[[], str] = field(repr=False)
    """Asked with each connection."""
    tls: ssl.SSLContext | None = field(repr=False)


def parse_server_address(
    url: str,
    password: Callable[[], str] | None,
    *,
    scheme: str,
    default_port: int,
    tls_context: Callable[[str | None], ssl.SSLContext],
) -> ServerAddress:
    """Return the parts of ``url``; ``?ca_file=…`` and ``?encrypt=no`` are its options.

    Args:
        url: Of the database.
        password: What gives the password, if the URL does not hold it.
        scheme: Of such URLs, for the message that shows their form.
        default_port: Where the URL names none.
        tls_context: Trusts a file of certificates, or what the system trusts.

    Raises:
        ValueError: something is missing or unknown; the message says what, without the URL.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or default_port
    except ValueError:
        raise ValueError("the port must be a number") from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    encrypt, ca_file = options.pop("encrypt", "yes"), options.pop("ca_file", None)
    if options or encrypt not in ("yes", "no"):
        raise ValueError("the only options are encrypt=yes, encrypt=no and ca_file=/path")
    database = unquote(parts.path.removeprefix("/"))
    if not (parts.hostname and database and parts.username and (parts.password or password)):
        raise ValueError(f"write {scheme}://user:password@host:{default_port}/database")
    try:
        tls = tls_context(ca_file) if encrypt == "yes" else None
    except OSError:
        raise ValueError("ca_file is not a file of certificates in PEM format") from None
    return ServerAddress(
        host=parts.hostname,
        port=port,
        database=database,
        user=unquote(parts.username),
        password=password or partial(unquote, parts.password or ""),
        tls=tls,
    )
