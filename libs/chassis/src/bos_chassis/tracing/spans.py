"""Spans that outlive their process: exported from a stored record, when the run finishes.

A span that is open when its process is killed is never exported, and all below it is left without a
parent. Work that another process may go on with has spans whose ids follow from what is stored:
calls are made under a :class:`DeferredSpan`, and a :class:`FinishedSpan` with the same id is
exported once the work has ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from bos_chassis.tracing.attributes import ERROR_TYPE, LINK

_CALLER = otel_context.create_key("bos-caller")
_PROPAGATOR = TraceContextTextMapPropagator()
_TRACEPARENT = "traceparent"


class DeferredSpan(trace.NonRecordingSpan):
    """Stands for a span that is exported later.

    Calls under it have no client span of their own: that would be lost with its process, and what
    was called would have no parent.
    """


@contextmanager
def under(context: trace.SpanContext | None) -> Iterator[None]:
    """Make a span that is exported later the current one; None: outside of any trace."""
    span = trace.INVALID_SPAN if context is None else DeferredSpan(context)
    with trace.use_span(span, record_exception=False, set_status_on_exception=False):
        yield


def stored_context(trace_id: int, flags: int, *key: object) -> trace.SpanContext:
    """Context of the span that ``key`` names in a trace: the same in every process."""
    text = "\0".join((f"{trace_id:032x}", *map(str, key)))
    span_id = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) or 1
    # Remote, so that an exporter of its children does not look for it in this process.
    return trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))


def stored_trace_id(*key: object) -> int:
    """Id of the trace that ``key`` names: the same in every process."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, key)).encode()).digest()[:16]) or 1


def context_of(traceparent: str) -> trace.SpanContext | None:
    """The span that a W3C ``traceparent`` names; None if it names none."""
    found = _PROPAGATOR.extract({_TRACEPARENT: traceparent}, context=otel_context.Context())
    context = trace.get_current_span(found).get_span_context()
    return context if context.is_valid else None


def traceparent_of(context: trace.SpanContext) -> str:
    """W3C ``traceparent`` of a span; empty if it is none."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(trace.NonRecordingSpan(context)))
    return carrier.get(_TRACEPARENT, "")


def with_caller(
    context: otel_context.Context, caller: trace.SpanContext | None
) -> otel_context.Context:
    """A context that knows the span of a trusted caller; for the server interceptor."""
    return otel_context.set_value(_CALLER, caller, context)


def caller_span() -> trace.SpanContext | None:
    """The caller's span, if the server call in progress belongs to its trace."""
    found = otel_context.get_value(_CALLER)
    return found if isinstance(found, trace.SpanContext) else None


@dataclass(frozen=True, slots=True)
class FinishedSpan:
    """A span whose begin and end are known; times are nanoseconds since 1970."""

    name: str
    context: trace.SpanContext
    parent: trace.SpanContext | None
    start_ns: int
    end_ns: int
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    links: tuple[tuple[trace.SpanContext, str], ...] = ()
    """Spans, and what the link to each is for."""
    kind: trace.SpanKind = trace.SpanKind.INTERNAL
    error: str = ""
    """Type of the error; empty if there is none."""

    def readable(self, resource: Resource) -> ReadableSpan:
        """The span as the SDK exports it."""
        attributes = dict(self.attributes)
        if self.error:
            attributes[ERROR_TYPE] = self.error
        return ReadableSpan(
            self.name,
            self.context,
            parent=self.parent,
            resource=resource,
            attributes=attributes,
            links=[trace.Link(context, {LINK: what}) for context, what in self.links],
            kind=self.kind,
            status=trace.Status(trace.StatusCode.ERROR if self.error else trace.StatusCode.UNSET),
            start_time=self.start_ns,
            end_time=max(self.start_ns, self.end_ns),
        )
