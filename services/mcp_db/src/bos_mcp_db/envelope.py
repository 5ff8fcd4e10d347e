"""The envelopes of both tools: plain JSON objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bos_chassis.values import unique_names
from bos_errors import BosError
from bos_mcp_db.backends.backend import Limits, Result, TableInfo
from bos_mcp_db.databases import Database
from bos_mcp_db.failures import QueryFailed, QueryRefused
from bos_mcp_db.fingerprint import schema_fingerprint
from bos_mcp_db.samples import Samples
from bos_mcp_db.values import encode

Envelope = dict[str, Any]


def result_envelope(result: Result, elapsed_ms: float) -> Envelope:
    """Return the envelope of a query that ran; column names are made unique (``n``, ``n_2``)."""
    return {
        "success": True,
        "columns": unique_names(result.columns),
        "column_types": result.types,
        "data": [[encode(cell) for cell in row] for row in result.rows],
        "row_count": len(result.rows),
        "truncated": result.truncated,
        "elapsed_ms": round(elapsed_ms, 3),
        "error": None,
        "violations": [],
    }


def failure_envelope(failure: BosError, elapsed_ms: float) -> Envelope:
    """Return the envelope of a query that did not run or did not finish."""
    return {
        "success": False,
        "columns": [],
        "column_types": [],
        "data": [],
        "row_count": 0,
        "truncated": False,
        "elapsed_ms": round(elapsed_ms, 3),
        **_error(failure),
    }


def overview_envelope(database: Database, tables: Sequence[TableInfo]) -> Envelope:
    """Return the envelope of ``list_tables``: every readable table in one line each."""
    return {
        **_database(database, database.limits),
        "fingerprint": schema_fingerprint(tables, database.role),
        "narrowed": database.narrowed,
        "tables": [
            {
                "name": table.name,
                "kind": table.kind,
                "comment": table.comment,
                "row_estimate": table.row_estimate,
                **({"title": table.title} if table.title else {}),
            }
            for table in tables
        ],
        "error": None,
        "violations": [],
    }


def files_envelope(database: Database, tables: Sequence[TableInfo]) -> Envelope:
    """Return the overview of uploaded files, with those that cannot be tables, and why."""
    rejected = getattr(database.backend, "rejected", ())
    return {
        **overview_envelope(database, tables),
        "rejected": [{"file": each.file, "reason": each.reason} for each in rejected],
    }


def schema_envelope(
    database: Database,
    tables: Sequence[TableInfo],
    samples: Samples,
) -> Envelope:
    """Return the envelope of detailed tables; ``samples`` are by table and column."""
    return {
        **_database(database, database.limits),
        "tables": [_table(table, samples.get(table.name, {})) for table in tables],
        "error": None,
        "violations": [],
    }


def schema_failure_envelope(failure: BosError) -> Envelope:
    """Return the envelope of a schema that could not be read."""
    return {"success": False, "tables": [], **_error(failure)}


def _table(table: TableInfo, samples: dict[str, list[str]]) -> Envelope:
    return {
        "name": table.name,
        "kind": table.kind,
        "comment": table.comment,
        "row_estimate": table.row_estimate,
        "columns": [
            {
                "name": column.name,
                "type": column.type,
                "nullable": column.nullable,
                "comment": column.comment,
                "sample_values": samples.get(column.name, []),
            }
            for column in table.columns
        ],
        "primary_key": table.primary_key,
        "unique_keys": table.unique_keys,
        "foreign_keys": [asdict(key) for key in table.foreign_keys],
    }


def _database(database: Database, limits: Limits) -> Envelope:
    return {
        "success": True,
        "database": database.name,
        "description": database.description,
        "dialect": database.backend.dialect,
        "default_schema": database.backend.default_schema,
        "limits": {
            "max_rows": limits.max_rows,
            "max_columns": limits.max_columns,
            "timeout_s": limits.timeout_s,
        },
    }


def _error(failure: BosError) -> Envelope:
    broken = failure.broken if isinstance(failure, QueryRefused) else ()
    return {
        "error": {
            "type": getattr(failure, "error_type", type(failure).__name__),
            "message": failure.message,
            "reason": failure.reason,
            "sqlstate": failure.sqlstate if isinstance(failure, QueryFailed) else "",
        },
        "violations": [asdict(violation) for violation in broken],
    }
