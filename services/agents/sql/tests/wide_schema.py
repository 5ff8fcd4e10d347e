"""Schema of a fictitious enterprise with 200 tables, and questions with their tables.

One line of ``wide_schema.txt`` per table: ``name: comment | columns``; ``column>table`` is a
foreign key to the primary key of that table, which is its first column.
"""

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

_HERE = Path(__file__).parent


def described(name: str, columns: str, comment: str = "", **keys: Any) -> dict[str, Any]:
    """A table as ``mcp_db_schema`` describes it.

    Args:
        columns: Name, type (text) and ``?`` if nullable, separated by commas or in one word each.
        keys: ``a=("b", "x")``: its column a points at b.x.
    """
    named = [each.split() for each in (columns.split(",") if "," in columns else columns.split())]
    return {
        "name": name,
        "kind": "table",
        "comment": comment,
        "row_estimate": 7,
        "columns": [
            {
                "name": column,
                "type": kind[0] if kind else "text",
                "nullable": "?" in kind,
                "comment": "",
                "sample_values": [],
            }
            for column, *kind in named
        ],
        "primary_key": [named[0][0]],
        "unique_keys": [],
        "foreign_keys": [
            {"columns": [own], "table": other, "references": [column]}
            for own, (other, column) in keys.items()
        ],
    }


def wide_questions() -> dict[str, set[str]]:
    """Questions, each with the tables that its answer requires."""
    read = yaml.safe_load((_HERE / "wide_questions.yaml").read_text(encoding="utf-8"))
    return {question: set(tables) for question, tables in read.items()}


def wide_tables() -> list[dict[str, Any]]:
    """The tables as ``mcp_db_schema`` describes them."""
    text = (_HERE / "wide_schema.txt").read_text(encoding="utf-8")
    parsed = [_parse(line) for line in text.splitlines()]
    keys = {name: columns[0].partition(">")[0] for name, _, columns in parsed}
    tables = []
    for name, comment, columns in parsed:
        pairs = [column.partition(">") for column in columns]
        references = {own: (other, keys[other]) for own, mark, other in pairs if mark}
        tables.append(described(name, " ".join(own for own, *_ in pairs), comment, **references))
    return tables


def wide_ddl() -> str:
    """DDL of the tables, each after the ones that it references."""
    waiting, statements = {table["name"]: table for table in wide_tables()}, []
    for table in _in_order(waiting):
        columns = [f"{column['name']} text" for column in table["columns"]]
        columns[0] += " PRIMARY KEY"
        keys = [
            f"FOREIGN KEY ({key['columns'][0]}) REFERENCES {key['table']} ({key['references'][0]})"
            for key in table["foreign_keys"]
        ]
        statements.append(f"CREATE TABLE {table['name']} ({', '.join([*columns, *keys])});")
    return "\n".join(statements)


def _in_order(tables: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    done: dict[str, dict[str, Any]] = {}

    def visit(name: str) -> None:
        if name not in done:
            for key in tables[name]["foreign_keys"]:
                if key["table"] != name:
                    visit(key["table"])
            done[name] = tables[name]

    for name in tables:
        visit(name)
    return list(done.values())


def _parse(line: str) -> tuple[str, str, list[str]]:
    head, _, columns = line.partition(" | ")
    name, _, comment = head.partition(": ")
    return name, comment, columns.split()
