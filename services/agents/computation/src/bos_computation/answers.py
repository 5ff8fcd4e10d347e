"""Table of a model-written summary."""

from __future__ import annotations

from bos.common.v1 import Table
from bos_agentkit.programs.result_tables import MAX_ROWS
from bos_chassis.values import make_table, unique_names
from bos_computation.replies import SummaryTable


def summary_table(table: SummaryTable | None) -> Table | None:
    """Table of the summary; None if there is none or its rows differ in length from its columns."""
    if table is None or not table.columns or not table.rows:
        return None
    if any(len(row) != len(table.columns) for row in table.rows):
        return None
    truncated = len(table.rows) > MAX_ROWS
    return make_table(unique_names(table.columns), table.rows[:MAX_ROWS], truncated=truncated)
