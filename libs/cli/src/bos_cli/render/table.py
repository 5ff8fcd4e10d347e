"""A typed table as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table as Grid
from rich.text import Text

from bos.common.v1 import ColumnType
from bos_client.text import one_line, value_text

if TYPE_CHECKING:
    from bos.common.v1 import Table, Value

_NUMBERS = frozenset(
    {
        ColumnType.COLUMN_TYPE_INT64,
        ColumnType.COLUMN_TYPE_DOUBLE,
        ColumnType.COLUMN_TYPE_DECIMAL,
    }
)
_NUMBER_KINDS = frozenset({"int64_value", "double_value", "decimal_value"})
_MAX_CELL_CHARS = 80


def table_grid(table: Table, max_rows: int) -> Grid:
    """The first ``max_rows`` rows; numbers to the right, every digit shown."""
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, column in enumerate(table.columns):
        number = column.type in _NUMBERS or _all_numbers(table, index)
        grid.add_column(
            Text(one_line(column.name, _MAX_CELL_CHARS)),
            justify="right" if number else "left",
            overflow="fold",
            # A number that is broken over two lines, or cut, reads as another number.
            no_wrap=number,
            min_width=_widest(table, index, max_rows) if number else None,
        )
    for row in table.rows[:max_rows]:
        grid.add_row(*(Text(_cell(value)) for value in row.values))
    return grid


def rows_note(table: Table, max_rows: int) -> str:
    """What the grid leaves out; empty if nothing."""
    shown, there = min(max_rows, len(table.rows)), len(table.rows)
    notes = []
    if shown < there:
        notes.append(f"{shown} of {there} rows shown")
    if table.truncated:
        notes.append("the source has more than was returned")
    return "; ".join(notes)


def _cell(value: Value) -> str:
    text = value_text(value)
    return text if value.WhichOneof("kind") in _NUMBER_KINDS else one_line(text, _MAX_CELL_CHARS)


def _widest(table: Table, index: int, max_rows: int) -> int:
    return max((len(_cell(row.values[index])) for row in table.rows[:max_rows]), default=1)


def _all_numbers(table: Table, index: int) -> bool:
    """Whether a column of undeclared type holds numbers only, and at least one."""
    if table.columns[index].type != ColumnType.COLUMN_TYPE_UNSPECIFIED:
        return False
    kinds = {row.values[index].WhichOneof("kind") for row in table.rows} - {None, "null_value"}
    return bool(kinds) and kinds <= _NUMBER_KINDS
