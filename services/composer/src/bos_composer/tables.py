"""Small views of tables and values, for people and for prompts. Pure."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from bos.common.v1 import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bos.agent.v1 import AgentResult
    from bos.common.v1 import Table, ValueMap
    from bos_composer.numbers import NumberFormat

MAX_COLUMNS = 12
MAX_CELL_CHARS = 120
MAX_VALUES = 40
_NO_SINGLE_VALUE = (None, "null_value", "list_value", "bytes_value")
_EMPTY_TEXT = Value(string_value="")
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


def values(result: AgentResult) -> list[tuple[str, Value]]:
    """The result's single values by name, sorted; at most ``MAX_VALUES``.

    Those inside maps are named as references name them: ``result.total``.
    """
    return list(islice(_leaves(result.data, ""), MAX_VALUES))


def is_number(value: Value) -> bool:
    """Whether the value is a number of any kind."""
    return value.WhichOneof("kind") in _NUMERIC


def _leaves(data: ValueMap, prefix: str) -> Iterator[tuple[str, Value]]:
    for name in sorted(data.fields):
        value = data.fields[name]
        if value.WhichOneof("kind") == "map_value":
            yield from _leaves(value.map_value, f"{prefix}{name}.")
        elif value.WhichOneof("kind") not in _NO_SINGLE_VALUE and value != _EMPTY_TEXT:
            yield f"{prefix}{name}", value


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= MAX_CELL_CHARS else line[: MAX_CELL_CHARS - 1] + "…"
