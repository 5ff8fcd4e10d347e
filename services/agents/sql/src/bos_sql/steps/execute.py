"""Steps ``execute_query`` and ``parse_results``: read-only execution through mcp_db."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bos.common.v1 import Table
from bos_agentkit import AgentFailure
from bos_errors import AgentErrorType
from bos_sql.database.mcp_results import read_table
from bos_sql.database.metadata import database_failure
from bos_sql.semantics.units import result_units
from bos_sql.steps.guard import ApprovedQuery
from bos_sql.steps.step_state import AttemptFailed, StepState

# Errors that another query may avoid; all others are outages or refusals.
_CORRECTABLE = frozenset({"QUERY_FAILED", "QUERY_TIMED_OUT", "RESULT_TOO_LARGE"})
_REFUSED = "QUERY_REFUSED"
# Reserved of the step's time, so that a slow query ends with its own error before the step does.
_RESERVE_S = 1.0
_SHORTEST_TIMEOUT_S = 0.1


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Result of a query."""

    query: ApprovedQuery
    table: Table
    elapsed_ms: float
    """Time in the database, as measured by mcp_db."""

    @property
    def stats(self) -> dict[str, Any]:
        """Execution statistics."""
        return {
            "elapsed_ms": self.elapsed_ms,
            "row_count": self.table.row_count,
            "truncated": self.table.truncated,
        }

    @property
    def has_values(self) -> bool:
        """Whether any cell is not empty."""
        return any(
            cell.WhichOneof("kind") not in (None, "null_value")
            for row in self.table.rows
            for cell in row.values
        )


async def execute_query(work: StepState, query: ApprovedQuery) -> Mapping[str, Any]:
    """Run exactly the approved query; returns the raw envelope of a success.

    Raises:
        AttemptFailed: the database refused the query, which may be corrected.
        AgentFailure: QueryError: mcp_db's guard blocked it, or the database is unavailable;
            ConfigurationError.
    """
    settings = work.settings
    arguments: dict[str, Any] = {
        "query": query.sql,
        "database": work.overview.database,
        "max_rows": work.overview.max_rows,
        "max_cols": work.overview.max_columns,
        "timeout_s": max(
            _SHORTEST_TIMEOUT_S,
            min(settings.query_timeout_s, work.task.remaining_s() - _RESERVE_S),
        ),
    }
    if not work.guard.is_approved(query, arguments["query"]):
        raise AgentFailure(
            AgentErrorType.QUERY_ERROR, "The query to be sent is not the one that was approved."
        )
    envelope: dict[str, Any] = await work.task.tools.call("mcp_db_query", **arguments)
    # Cells are untrusted data: side effects need approval from now on.
    work.task.taint()
    succeeded = envelope.get("success") is True
    work.task.trace.message(
        "execute_query",
        success=succeeded,
        row_count=envelope.get("row_count", 0),
        elapsed_ms=envelope.get("elapsed_ms", 0),
    )
    if not succeeded:
        raise _failure(envelope, query)
    return envelope


def parse_results(
    work: StepState, query: ApprovedQuery, envelope: Mapping[str, Any]
) -> QueryResult:
    """Decode the table of a success.

    Raises:
        Internal: the envelope holds no table.
    """
    table = read_table(envelope)
    units = result_units(query.sql, work.overview.dialect, work.index.catalog)
    for column in table.columns:
        column.unit = units.get(column.name.casefold(), "")
    _keep_columns(table, work.overview.shown_columns or len(table.columns))
    work.task.trace.message(
        "parse_results", columns=[column.name for column in table.columns], rows=table.row_count
    )
    return QueryResult(query, table, float(envelope.get("elapsed_ms") or 0.0))


def _keep_columns(table: Table, most: int) -> None:
    """Cut the table to its first columns, in place; it says so then."""
    if len(table.columns) <= most:
        return
    del table.columns[most:]
    for row in table.rows:
        del row.values[most:]
    table.truncated = True


def _failure(envelope: Mapping[str, Any], query: ApprovedQuery) -> Exception:
    error = envelope.get("error") or {}
    reason, message = error.get("reason"), str(error.get("message") or "The query failed.")
    if reason in _CORRECTABLE:
        return AttemptFailed(message, query.sql, from_database=True)
    if reason == _REFUSED:
        violations = [dict(each) for each in envelope.get("violations") or ()]
        return AgentFailure(
            AgentErrorType.QUERY_ERROR, message, {"violations": violations, "query": query.sql}
        )
    return database_failure(envelope)
