"""Results of programs as tables."""

from __future__ import annotations

from typing import Any

from bos.common.v1 import Table
from bos_chassis.values import make_table

MAX_ROWS = 200


def result_table(result: Any) -> Table | None:
    """Result as a table if it is a list of maps, columns in the order of their keys; else None."""
    if not isinstance(result, list) or not result:
        return None
    if not all(isinstance(row, dict) for row in result):
        return None
    columns = list(dict.fromkeys(name for row in result for name in row))
    if not columns:
        return None
    rows = [[row.get(name) for name in columns] for row in result[:MAX_ROWS]]
    return make_table(columns, rows, truncated=len(result) > MAX_ROWS)
