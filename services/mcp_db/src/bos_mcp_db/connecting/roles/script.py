"""The role's script, and the URL by which the role connects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from bos_mcp_db.backends.password_file import OPTION
from bos_mcp_db.provisioning import provision_mssql, provision_mysql, provision_sql

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bos_sqlguard import Dialect

# Of the administrator's URL: how the server is reached. All others are about a login.
_OPTIONS: Final = frozenset({"host", "port", "sslmode", "sslrootcert", "encrypt", "ca_file"})

_HEADS: Final[dict[Dialect, str]] = {
    "postgres": "-- Then: ALTER ROLE {role} PASSWORD '...';\n",
    "mysql": "-- Then: ALTER USER '{role}'@'%' IDENTIFIED BY '...' ACCOUNT UNLOCK;\n",
    "tsql": "-- First, in master: CREATE LOGIN {role} WITH PASSWORD = '...';\n",
}


def role_script(dialect: Dialect, role: str, tables: Sequence[str], default_schema: str) -> str:
    """A script for an administrator; it holds no password. Empty for SQLite, which has no roles.

    Raises:
        ValueError: a role name that is not plain, or no tables.
    """
    if dialect == "sqlite":
        return ""
    if dialect == "postgres":
        script = provision_sql(role, tables, default_schema=default_schema)
    elif dialect == "mysql":
        script = provision_mysql(role, tables, database=default_schema)
    else:
        script = provision_mssql(role, tables, default_schema=default_schema)
    head = "-- A role that reads these tables and nothing else; safe to run again.\n"
    return head + _HEADS[dialect].format(role=role) + script


def role_url(url: str, role: str, password_file: Path) -> str:
    """The administrator's URL with the role in its place, whose password is in a file."""
    parts = urlsplit(url)
    address = parts.netloc.rpartition("@")[2]
    options = [each for each in parse_qsl(parts.query) if each[0] in _OPTIONS]
    query = urlencode([*options, (OPTION, str(password_file))], quote_via=quote, safe="/")
    return urlunsplit(parts._replace(netloc=f"{role}@{address}", query=query, fragment=""))
