"""Passwords of databases that stand in a file, and change while the service runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from bos_chassis.credentials.watched_files import secret_file

OPTION: Final = "password_file"
"""Of URLs: the file whose text is the password."""


def password_source(url: str, database: str) -> tuple[str, Callable[[], str] | None]:
    """``url`` without that option, and what gives the password of each new connection.

    A file that is being replaced gives what it gave before.

    Args:
        url: Of a database server.
        database: Its name, for messages.

    Raises:
        ConfigurationError: the file is not usable.
        ValueError: the URL holds a password as well.
    """
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    files = [value for key, value in options if key == OPTION]
    if not files:
        return url, None
    if parts.password or len(files) > 1:
        raise ValueError(f"write one {OPTION}, and no password in the URL")
    others = urlencode([each for each in options if each[0] != OPTION], quote_via=quote)
    # urlunsplit drops the slashes of an empty authority.
    rest = f"{parts.scheme}://{parts.netloc}{parts.path}" + (f"?{others}" if others else "")
    return rest, secret_file(Path(files[0]), f"{OPTION} of the database {database!r}", str).look
