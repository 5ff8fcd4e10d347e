"""The two tools of the MCP server: translate arguments and outcomes, nothing else."""

from __future__ import annotations

import asyncio
import json
import time
from importlib.metadata import version
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from opentelemetry.trace import SpanKind
from pydantic import Field

from bos_chassis.auth.callers import current_principal
from bos_chassis.telemetry import Telemetry
from bos_chassis.tracing import attributes as names
from bos_errors import NEUTRAL_INTERNAL_MESSAGE, BosError, Internal
from bos_mcp_db.backends.files.opening import FILES_DATABASE, UserFiles
from bos_mcp_db.databases import Database, Databases
from bos_mcp_db.envelope import (
    Envelope,
    failure_envelope,
    files_envelope,
    overview_envelope,
    result_envelope,
    schema_envelope,
    schema_failure_envelope,
)
from bos_mcp_db.failures import QueryRefused
from bos_mcp_db.metrics import QueryMetrics
from bos_mcp_db.samples import HiddenColumns, sample_values

_READ_ONLY = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)

_DatabaseName = Annotated[
    str, Field(description="Name of a configured database; empty for the default one")
]


class Tools:
    """The MCP tools; one instance per service."""

    def __init__(
        self,
        databases: Databases,
        telemetry: Telemetry,
        metrics: QueryMetrics,
        hidden: HiddenColumns,
        files: UserFiles | None = None,
    ) -> None:
        self._databases = databases
        self._files = files
        self._hidden = hidden
        self._tracer = telemetry.tracer
        self._log = telemetry.logger("tools")
        self._metrics = metrics

    async def query(
        self,
        query: Annotated[str, Field(description="One SELECT statement in the database's dialect")],
        database: _DatabaseName = "",
        max_rows: Annotated[
            int | None, Field(ge=1, description="Lowers the configured row limit")
        ] = None,
        max_cols: Annotated[
            int | None, Field(ge=1, description="Lowers the configured column limit")
        ] = None,
        timeout_s: Annotated[
            float | None, Field(gt=0, description="Lowers the configured time limit, in seconds")
        ] = None,
    ) -> CallToolResult:
        """Run one read-only query and return its rows."""
        started = time.perf_counter()
        outcome = "cancelled"
        with (
            self._metrics.in_flight.track_inprogress(),
            self._tracer.start_as_current_span("mcp_db query", kind=SpanKind.SERVER) as span,
        ):
            span.set_attribute(names.DB_NAMESPACE, database[:64])
            try:
                target = await self._target(database)
                limits = target.lowered(max_rows, max_cols, timeout_s)
                result = await target.query(query, limits)
                envelope = result_envelope(result, _elapsed_ms(started))
                outcome = "ok"
                span.set_attribute(names.DB_RETURNED_ROWS, envelope["row_count"])
            except asyncio.CancelledError:
                raise
            except Exception as error:
                failure = self._known(error)
                envelope = failure_envelope(failure, _elapsed_ms(started))
                outcome = failure.reason.lower()
                span.set_attribute(names.ERROR_TYPE, failure.reason)
            finally:
                self._metrics.observe(outcome, time.perf_counter() - started)
                self._log.info("query", outcome=outcome, database=database[:64], size=len(query))
        return _reply(envelope)

    async def schema(
        self,
        database: _DatabaseName = "",
        tables: Annotated[
            list[str] | None,
            Field(max_length=100, description="Tables to describe in detail; none lists them all"),
        ] = None,
    ) -> CallToolResult:
        """List the readable tables, or describe some of them in detail."""
        try:
            target = await self._target(database)
            found = await target.describe(tables or ())
            if tables:
                samples = await sample_values(target, found, self._hidden)
                envelope = schema_envelope(target, found, samples)
            elif target.name == FILES_DATABASE and self._files is not None:
                envelope = files_envelope(target, found)
            else:
                envelope = overview_envelope(target, found)
        except Exception as error:
            envelope = schema_failure_envelope(self._known(error))
        return _reply(envelope)

    async def _target(self, name: str) -> Database:
        """The database called ``name``, as the caller may read it."""
        if self._files is not None and name == FILES_DATABASE:
            return await self._files.database()
        return self._databases.get(name, _groups())

    def _known(self, error: Exception) -> BosError:
        if isinstance(error, QueryRefused):
            for violation in error.broken:
                self._metrics.refused(violation.rule)
        if isinstance(error, BosError):
            return error
        self._log.error("tool failed", exc_info=error)
        return Internal(NEUTRAL_INTERNAL_MESSAGE)


def build_server(tools: Tools) -> MCPServer:
    """Return the MCP server that offers ``mcp_db_schema`` and ``mcp_db_query``."""
    server: MCPServer = MCPServer(
        "bos-mcp-db",
        instructions="Read-only access to databases. Ask mcp_db_schema before mcp_db_query.",
        version=version("bos-mcp-db"),
        log_level="WARNING",
    )
    for name, function in (("mcp_db_schema", tools.schema), ("mcp_db_query", tools.query)):
        server.add_tool(function, name=name, annotations=_READ_ONLY)
    return server


def _reply(envelope: Envelope) -> CallToolResult:
    # Clients without structured content read the same object as text.
    text = json.dumps(envelope, ensure_ascii=False, separators=(",", ":"))
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=envelope,
        is_error=not envelope["success"],
    )


def _groups() -> frozenset[str]:
    """Groups of the user on whose behalf this is called, as the run token has them."""
    principal = current_principal()
    return frozenset() if principal is None else principal.groups


def _elapsed_ms(started: float) -> float:
    return (time.perf_counter() - started) * 1000
