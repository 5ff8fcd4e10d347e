from __future__ import annotations

from collections.abc import Callable

import grpc
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from bos_chassis.interceptors.concern import Concern, ServerCall
from bos_chassis.telemetry import Telemetry
from bos_chassis.tracing import attributes as names
from bos_chassis.tracing.attributes import user_digest
from bos_chassis.tracing.spans import with_caller

_TRACEPARENT = "traceparent"
# Semantic conventions for gRPC servers: only these codes make a server span an error.
_ERROR_CODES = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)


class Tracing(Concern):
    """A server span per call, child of the span that the client's ``traceparent`` names.

    Clients that are not believed start a trace of our own, sampled as we sample, whose span links
    to theirs: neither can they choose the ids of our traces nor have everything recorded.

    Args:
        telemetry: Of the service.
        believed: Whether a call comes from inside.
    """

    def __init__(self, telemetry: Telemetry, believed: Callable[[ServerCall], bool]) -> None:
        self._tracer = telemetry.tracer
        self._propagator = TraceContextTextMapPropagator()
        self._believed = believed

    async def begin(self, call: ServerCall) -> None:
        """Start the span and make it current for the handler."""
        # An empty context: without a traceparent the call starts a trace of its own.
        parent = otel_context.Context()
        caller: trace.SpanContext | None = None
        links: list[trace.Link] = []
        if _TRACEPARENT in call.metadata:
            named = self._propagator.extract(call.metadata, context=parent)
            theirs = trace.get_current_span(named).get_span_context()
            if self._believed(call):
                parent, caller = named, theirs if theirs.is_valid else None
            elif theirs.is_valid:
                links = [trace.Link(theirs, {names.LINK: "caller"})]
        call.span = self._tracer.start_span(
            f"{call.service}/{call.method}",
            context=parent,
            kind=trace.SpanKind.SERVER,
            links=links,
            attributes={
                names.RPC_SYSTEM: "grpc",
                names.RPC_SERVICE: call.service,
                names.RPC_METHOD: call.method,
                **_of_run(call),
            },
        )
        # Never detached: gRPC runs each call in a task of its own, whose context dies with it.
        context = trace.set_span_in_context(call.span, parent)
        otel_context.attach(with_caller(context, caller))

    def end(self, call: ServerCall) -> None:
        """End the span with the call's status; the text of an exception is not recorded."""
        span = call.span
        if span is None:
            return
        span.set_attribute(names.RPC_GRPC_STATUS_CODE, call.code.value[0])
        if call.code in _ERROR_CODES:
            span.set_status(trace.Status(trace.StatusCode.ERROR))
            if call.error is not None:
                span.set_attribute(names.ERROR_TYPE, type(call.error).__qualname__)
        span.end()


def _of_run(call: ServerCall) -> dict[str, str]:
    """Run, step and agent that a call is made for, by its run token."""
    who = call.principal
    if who is None or not who.run_id:
        return {}
    found = {
        names.RUN_ID: who.run_id,
        names.STEP_KEY: who.step_key,
        names.GEN_AI_AGENT_NAME: who.agent,
        names.USER_DIGEST: user_digest(who.user_id),
    }
    return {name: value for name, value in found.items() if value}
