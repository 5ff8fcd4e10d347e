"""Small views of tables and values, for people and for prompts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bos.agent.v1 import AgentResult
    from bos.common.v1 import Table, Value
    from bos_composer.numbers import NumberFormat

MAX_COLUMNS = 12
MAX_CELL_CHARS = 120
MAX_VALUES = 20
_NUMERIC = ("int64_value", "double_value", "decimal_value")


def markdown(table: Table, numbers: NumberFormat, *, max_rows: int) -> str:
    """The first rows as a Markdown table, and a line that says what is left out."""
    columns = [column.name for column in table.columns[:MAX_COLUMNS]]
    lines = [_line(columns), _line(["---"] * len(columns))]
    for row in table.rows[:max_rows]:
        cells = zip(columns, row.values, strict=False)  # a crooked row must not cost the answer
        lines.append(_line([_cell(numbers.cell(name, value)) for name, value in cells]))
    hidden = len(table.rows) - max_rows
    notes = [
        f"{hidden} more rows" if hidden > 0 else "",
        f"{len(table.columns) - MAX_COLUMNS} more columns"
        if len(table.columns) > MAX_COLUMNS
        else "",
        "the source has more than was returned" if table.truncated else "",
    ]
    left_out = ", ".join(note for note in notes if note)
    return "\n".join([*lines, *([f"({left_out})"] if left_out else [])])


def values(result: AgentResult) -> Iterator[tuple[str, Value]]:
    """The result's scalar data by name, sorted; at most ``MAX_VALUES``."""
    fields = result.data.fields
    scalars = [name for name in sorted(fields) if _is_scalar(fields[name])]
    for name in scalars[:MAX_VALUES]:
        yield name, fields[name]


def is_number(value: Value) -> bool:
    """Whether the value is a number of any kind."""
    return value.WhichOneof("kind") in _NUMERIC


def _is_scalar(value: Value) -> bool:
    return value.WhichOneof("kind") not in (
        None,
        "null_value",
        "list_value",
        "map_value",
        "bytes_value",
    )


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= MAX_CELL_CHARS else line[: MAX_CELL_CHARS - 1] + "…"
