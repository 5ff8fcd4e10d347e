"""Parser of `schema.sql`: tables, columns and their comments."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

_TABLE = re.compile(
    r"((?:^-- [^\n]*\n)+)CREATE TABLE (\w+) \(\n(.*?)^\);", re.MULTILINE | re.DOTALL
)
_COLUMN = re.compile(r"^    ([a-z]\w*) (.+?),? -- (.+)$", re.MULTILINE)


class Column(NamedTuple):
    """A column with its SQL type, constraints and comment."""

    name: str
    definition: str
    comment: str


class Table(NamedTuple):
    """A table with its comment, and its columns in order."""

    name: str
    comment: str
    columns: tuple[Column, ...]


def schema_sql() -> str:
    """Return the DDL, which both databases execute unchanged."""
    return (files("bos_demo") / "schema.sql").read_text(encoding="utf-8")


def read_tables() -> tuple[Table, ...]:
    """Return every table of the DDL in file order."""
    return tuple(
        Table(
            name=name,
            comment=" ".join(line.removeprefix("-- ") for line in comment.splitlines()),
            columns=tuple(Column(*column) for column in _COLUMN.findall(body)),
        )
        for comment, name, body in _TABLE.findall(schema_sql())
    )


def comment_statements(tables: tuple[Table, ...]) -> str:
    """Return COMMENT ON statements for PostgreSQL."""
    statements = []
    for table in tables:
        statements.append(f"COMMENT ON TABLE {table.name} IS {_literal(table.comment)};")
        statements += [
            f"COMMENT ON COLUMN {table.name}.{column.name} IS {_literal(column.comment)};"
            for column in table.columns
        ]
    return "\n".join(statements)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
