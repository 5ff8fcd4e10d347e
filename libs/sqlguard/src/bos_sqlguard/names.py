"""Names by dialect: folding, plain names, system catalogues."""

from __future__ import annotations

import re
import string
from typing import Literal, get_args

# Servers fold ASCII letters only; folding more here would let two names meet that differ there.
_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)

# Letters, digits, underscore, and $ after the first character: every lexer here reads these alike.
PLAIN_NAME = re.compile(r"[^\W\d][\w$]*")

_SYSTEM_SCHEMAS = frozenset({"information_schema", "sys", "temp"})
_SYSTEM_DATABASES: dict[Dialect, frozenset[str]] = {
    "duckdb": frozenset({"system"}),
    "mysql": frozenset({"mysql", "performance_schema", "ndbinfo"}),
}
_SYSTEM_TABLE_PREFIXES: dict[Dialect, tuple[str, ...]] = {
    # Those of PostgreSQL and SQLite are here under their own names, in every schema.
    "duckdb": ("duckdb_", "pragma_", "pg_", "sqlite_"),
    "mysql": (),
    "postgres": ("pg_",),
    "sqlite": ("sqlite_", "pragma_", "dbstat"),
    # The views that remain from old versions; they live in every schema's name space.
    "tsql": (
        "sysobjects", "syscolumns", "sysusers", "syslogins", "sysprocesses", "sysdatabases",
        "syscomments", "sysindexes", "sysservers", "sysconfigures", "syspermissions", "spt_", "#",
    ),
}  # fmt: skip


def fold(dialect: Dialect, name: str, *, quoted: bool) -> str:
    """Return the form of ``name`` that two references to the same thing share.

    PostgreSQL folds unquoted names to lower case and compares exactly; SQLite and DuckDB ignore
    ASCII case, of quoted names too.
    T-SQL compares by collation, so the CTE lookup does not rely on this fold alone. MySQL compares
    tables as its file system does, so only the same spelling is surely the same table.
    """
    if dialect == "mysql" or (dialect == "postgres" and quoted):
        return name
    return name.translate(_ASCII_LOWER)


def is_system_table(dialect: Dialect, schema: str, table: str) -> bool:
    """Whether ``schema.table`` (or the bare name alone) is a catalogue of the server."""
    schema, table = schema.lower(), table.lower()
    if schema in _SYSTEM_SCHEMAS or schema.startswith("pg_"):
        return True
    if schema in _SYSTEM_DATABASES.get(dialect, ()):
        return True
    return table.startswith(_SYSTEM_TABLE_PREFIXES[dialect])


Dialect = Literal["duckdb", "mysql", "postgres", "sqlite", "tsql"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
