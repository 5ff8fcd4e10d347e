"""Names in SQL that this service writes itself."""

from __future__ import annotations


def quote(name: str) -> str:
    """Return ``name`` as a quoted identifier, the same in PostgreSQL and SQLite."""
    return '"' + name.replace('"', '""') + '"'


def split_table(entry: str, default_schema: str) -> tuple[str, str]:
    """Return schema and table of an allow-list entry, ``table`` or ``schema.table``."""
    schema, dot, table = entry.rpartition(".")
    return (schema, table) if dot else (default_schema, entry)
