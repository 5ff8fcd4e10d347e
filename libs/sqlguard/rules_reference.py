"""Writes the page of the guard's rules from the rules and lists, so that it cannot drift.

::

    .venv/bin/python libs/sqlguard/rules_reference.py docs/reference/sql-guard-rules.md
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bos_sqlguard.guard import FORBIDDEN_KEYWORDS
from bos_sqlguard.names import DIALECTS
from bos_sqlguard.nodes import NODES, TYPES
from bos_sqlguard.policy import load_functions
from bos_sqlguard.rules import load_rules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos_sqlguard.names import Dialect

_PREFACE = """\
# Rules of the SQL guard

This page is generated from the guard's own data; `tests/docs/test_generated_pages.py` fails when it
is out of date. To write it anew:

    .venv/bin/python libs/sqlguard/rules_reference.py docs/reference/sql-guard-rules.md

Every query passes the guard twice: in the sql agent, and in `mcp_db`, where nothing turns it off.
What is not on a list is refused, and a refusal names every rule that was broken by an id that does
not change. How the guard works: `libs/sqlguard/README.md`; what holds without it:
`services/mcp_db/README.md`.
"""

_NAMES: dict[Dialect, str] = {
    "duckdb": "DuckDB",
    "mysql": "MySQL and MariaDB",
    "postgres": "PostgreSQL",
    "sqlite": "SQLite",
    "tsql": "T-SQL",
}


def render() -> str:
    """The whole page."""
    parts = [_PREFACE, _rules(), _keywords(), _constructs()]
    return "\n".join([*parts, *(_dialect(dialect) for dialect in DIALECTS)])


def _rules() -> str:
    rows = [
        f"| `{rule.id}` | {_cell(rule.title)} | {_cell(rule.why)} |"
        for rule in load_rules().values()
    ]
    return "\n".join(["## Rules", "", "| Id | Rule | Why |", "|---|---|---|", *rows, ""])


def _keywords() -> str:
    return (
        "## Keywords\n\nRefused by `KEYWORD` wherever they stand, except in text, comments and"
        f" quoted names: {_listed(FORBIDDEN_KEYWORDS)}.\n"
    )


def _constructs() -> str:
    return (
        "## Constructs\n\nParts of a syntax tree that a query may consist of, each with listed"
        f" arguments only: {_listed(node.__name__ for node in NODES)}.\n"
    )


def _dialect(dialect: Dialect) -> str:
    functions = load_functions(dialect)
    lines = [
        f"## {_NAMES[dialect]}",
        "",
        f"* Functions: {_listed(functions.scalar)}",
        f"* Where a table stands: {_listed(functions.table)}",
        f"* Types: {_listed(TYPES[dialect])}",
        f"* Names that are refused as columns: {_listed(_refused_names(dialect))}",
        f"* With a size written as a number, at most 10000: {_listed(functions.bounded)}",
        f"* With a format written as text, fields at most 999 wide: {_listed(functions.formats)}",
    ]
    of_a_row = [*functions.of_a_row, *(f"{prefix}…" for prefix in functions.of_a_row_prefixes)]
    if of_a_row:
        lines.append(f"* Refused after a table's name and a dot: {_listed(of_a_row)}")
    return "\n".join([*lines, ""])


def _refused_names(dialect: Dialect) -> frozenset[str]:
    functions = load_functions(dialect)
    return functions.session_names | functions.system_columns


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: list[str]) -> None:
    """Write the page to the given path."""
    if len(arguments) != 1:
        sys.exit("usage: python libs/sqlguard/rules_reference.py PATH")
    Path(arguments[0]).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
