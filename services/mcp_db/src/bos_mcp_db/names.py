"""Names in SQL that this service writes itself."""

from __future__ import annotations


def quote(name: str, dialect: str = "") -> str:
    """Return ``name`` as a quoted identifier; only MySQL has quotes of its own."""
    mark = "`" if dialect == "mysql" else '"'
    return mark + name.replace(mark, 2 * mark) + mark


def split_table(entry: str, default_schema: str) -> tuple[str, str]:
    """Return schema and table of an allow-list entry, ``table`` or ``schema.table``."""
    schema, dot, table = entry.rpartition(".")
    return (schema, table) if dot else (default_schema, entry)


def literal(text: str) -> str:
    """Return ``text`` as a text literal of T-SQL, for queries that this service writes itself."""
    return "N'" + text.replace("'", "''") + "'"
