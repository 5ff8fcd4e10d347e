"""Spans of SQL statements, made once they have ended; without their text and parameters."""

from __future__ import annotations

import time

from opentelemetry import trace

from bos_chassis.telemetry import Telemetry
from bos_chassis.tracing import attributes as names

_MAX_OPERATION_CHARS = 20


def record_query(
    telemetry: Telemetry, system: str, statement: str, elapsed_s: float, error: object = None
) -> None:
    """Record a statement that has just ended, below the current span; outside of one nothing.

    Args:
        telemetry: Of the service.
        system: ``db.system.name`` of the database.
        statement: Its text, of which the first word alone is kept.
        elapsed_s: How long it took.
        error: What it ended with, if it failed.
    """
    if not trace.get_current_span().is_recording():
        return
    first = statement.split(None, 1)
    word = first[0].rstrip(";")[:_MAX_OPERATION_CHARS].upper() if first else ""
    operation = word or "QUERY"
    ended_ns = time.time_ns()
    span = telemetry.tracer.start_span(
        operation,
        kind=trace.SpanKind.CLIENT,
        attributes={names.DB_SYSTEM_NAME: system, names.DB_OPERATION_NAME: operation},
        start_time=ended_ns - int(elapsed_s * 1e9),
    )
    if error is not None:
        span.set_attribute(names.ERROR_TYPE, type(error).__qualname__)
        span.set_status(trace.StatusCode.ERROR)
    span.end(ended_ns)
