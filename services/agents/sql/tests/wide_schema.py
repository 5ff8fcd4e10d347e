"""Schema of a fictitious enterprise with 200 tables, and questions with their tables.

One line of ``wide_schema.txt`` per table: ``name: comment | columns``; ``column>table`` is a
foreign key to the primary key of that table, which is its first column.
"""

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

_HERE = Path(__file__).parent


def wide_questions() -> dict[str, set[str]]:
    """Questions, each with the tables that its answer requires."""
    read = yaml.safe_load((_HERE / "wide_questions.yaml").read_text(encoding="utf-8"))
    return {question: set(tables) for question, tables in read.items()}


def wide_tables() -> list[dict[str, Any]]:
    """The tables as ``mcp_db_schema`` describes them."""
    text = (_HERE / "wide_schema.txt").read_text(encoding="utf-8")
    parsed = [_parse(line) for line in text.splitlines()]
    keys = {name: columns[0].partition(">")[0] for name, _, columns in parsed}
    return [_described(*table, keys) for table in parsed]


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


def _described(name: str, comment: str, columns: list[str], keys: dict[str, str]) -> dict[str, Any]:
    split = [column.partition(">") for column in columns]
    return {
        "name": name,
        "kind": "table",
        "comment": comment,
        "row_estimate": None,
        "columns": [
            {"name": own, "type": "text", "nullable": False, "comment": "", "sample_values": []}
            for own, _, _ in split
        ],
        "primary_key": [split[0][0]],
        "unique_keys": [],
        "foreign_keys": [
            {"columns": [own], "table": other, "references": [keys[other]]}
            for own, _, other in split
            if other
        ],
    }
