"""Trace of a run, and the ids of its spans, which follow from what its log holds.

Every replica that drives the run gives the same span the same id, so what a killed owner began is
finished by another one.
"""

from __future__ import annotations

from attrs import frozen
from opentelemetry.trace import SpanContext

from bos.runlog.v1 import RunAccepted
from bos_chassis.tracing.spans import context_of, stored_context, stored_trace_id


@frozen
class RunTrace:
    """Where the spans of one run belong."""

    run_id: str
    trace_id: int
    flags: int
    parent: SpanContext | None
    """Whom the run's span is a child of; None if it is the root."""
    request: SpanContext | None
    """The request that started the run, if its span is in another trace."""

    @classmethod
    def of(cls, run_id: str, accepted: RunAccepted) -> RunTrace | None:
        """The trace of a run by its first event; None if the request had none."""
        caller = context_of(accepted.traceparent)
        if caller is None:
            return None
        flags = int(caller.trace_flags)
        if accepted.own_trace:
            return cls(run_id, stored_trace_id("run", run_id), flags, None, caller)
        return cls(run_id, caller.trace_id, flags, caller, None)

    @property
    def root(self) -> SpanContext:
        """The span of the whole run."""
        return self._span("run")

    def owner(self, number: int) -> SpanContext:
        """One replica's time with the run, counted from 1."""
        return self._span("owner", number)

    def plan(self, revision: int) -> SpanContext:
        """Making one plan."""
        return self._span("plan", revision)

    def attempt(self, revision: int, step_id: str, attempt: int) -> SpanContext:
        """One attempt at a step."""
        return self._span("step", revision, step_id, attempt)

    def approval(self, approval_id: str) -> SpanContext:
        """The wait for a decision."""
        return self._span("approval", approval_id)

    def instructions(self, approval_id: str) -> SpanContext:
        """Classifying the instructions that came with a decision."""
        return self._span("instructions", approval_id)

    def answer(self) -> SpanContext:
        """Composing the answer."""
        return self._span("answer")

    def _span(self, *key: object) -> SpanContext:
        return stored_context(self.trace_id, self.flags, self.run_id, *key)
