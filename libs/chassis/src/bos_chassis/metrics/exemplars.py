"""Exemplars: the trace id of one observation beside its bucket, in the OpenMetrics format.

Only of traces that are recorded: the id of another one leads nowhere.
"""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.trace import Span


def exemplar_of(span: Span | None) -> dict[str, str] | None:
    """Exemplar labels with the trace id of ``span``; None if its trace is not recorded."""
    if span is None:
        return None
    context = span.get_span_context()
    if not (context.is_valid and context.trace_flags.sampled):
        return None
    return {"trace_id": trace.format_trace_id(context.trace_id)}


def current_exemplar() -> dict[str, str] | None:
    """Exemplar labels with the current trace id; None outside of a recorded trace."""
    return exemplar_of(trace.get_current_span())
