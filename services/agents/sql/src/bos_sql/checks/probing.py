"""Small queries about a result: bounded in number and time, through the guard and mcp_db."""

from __future__ import annotations

import time
from typing import Any

from sqlglot import exp

from bos.common.v1 import Table
from bos_errors import BosError
from bos_sql.database.mcp_results import read_table
from bos_sql.steps.step_state import StepState

# Of the time that the step has left: the answer has to be worded as well.
_SHARE_OF_TIME = 0.3
_SHORTEST_TIMEOUT_S = 0.1


class Prober:
    """Runs at most ``BOS_SQL_CHECK_QUERIES`` queries within ``BOS_SQL_CHECK_TIMEOUT_S`` per step.

    Args:
        work: The step; its guard and its toolbox run the queries.
    """

    def __init__(self, work: StepState) -> None:
        self._work = work
        self.left = work.settings.check_queries
        allowed_s = min(work.settings.check_timeout_s, work.task.remaining_s() * _SHARE_OF_TIME)
        self._until = time.monotonic() + allowed_s

    async def table(self, query: exp.Expr, check: str) -> Table | None:
        """Result of one query; None if no more may run, or it is blocked or fails."""
        work = self._work
        left_s = self._until - time.monotonic()
        if self.left <= 0 or left_s < _SHORTEST_TIMEOUT_S:
            return None
        self.left -= 1
        sql = query.sql(dialect=work.overview.dialect)
        approved = work.guard.check(sql).approved
        if approved is None or not work.guard.is_approved(approved, approved.sql):
            self._skipped(check, sql, "blocked")
            return None
        arguments: dict[str, Any] = {
            "query": approved.sql,
            "database": work.overview.database,
            "max_rows": 1,
            "max_cols": work.overview.max_columns,
            "timeout_s": left_s,
        }
        try:
            envelope = await work.task.tools.call("mcp_db_query", **arguments)
            if envelope.get("success") is not True:
                self._skipped(check, approved.sql, "failed")
                return None
            table = read_table(envelope)
        except BosError as error:
            self._skipped(check, approved.sql, error.reason)
            return None
        work.task.trace.message("Checked a result", check=check, query=approved.sql)
        return table

    def _skipped(self, check: str, sql: str, why: str) -> None:
        self._work.task.trace.message("A check was left out", check=check, query=sql, reason=why)
