"""Spans of a run, read from its log when it has ended: one root, and all that it consisted of.

None of them depends on a process that was there from begin to end, so none is lost with an owner
that is killed, and none stays open during an approval.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import Factory, define, field
from opentelemetry.trace import SpanContext, SpanKind
from opentelemetry.util.types import AttributeValue

from bos.agent.v1 import AgentExecutionStatus
from bos.common.v1 import Outcome
from bos.gateway.v1 import (
    RUN_STATUS_FAILED,
    ApprovalStatus,
    RunStatus,
)
from bos.runlog import v1 as runlog
from bos_chassis.tracing import attributes as names
from bos_chassis.tracing.spans import FinishedSpan, context_of
from bos_gateway.core.tracing.ids import RunTrace
from bos_plans import step_outcome

WORKFLOW = "bos"
LOST, REPEATED, UNFINISHED = "owner_lost", "attempt_repeated", "unfinished"


def run_spans(run_id: str, events: Sequence[runlog.LogEvent]) -> list[FinishedSpan]:
    """All spans of a run that has ended, the run's own last; empty if it belongs to no trace.

    Args:
        run_id: The run.
        events: Its whole log.
    """
    if not events or not events[0].HasField("run_accepted"):
        return []
    trace = RunTrace.of(run_id, events[0].run_accepted)
    if trace is None or not trace.flags & 1:
        return []
    timeline = _Timeline(trace)
    for event in events:
        timeline.take(event)
    return timeline.spans()


def bare_run_span(trace: RunTrace, start_ns: int, end_ns: int, error: str) -> FinishedSpan:
    """The span of a run without what its log says: it is not stored after all, or cannot be read.

    Calls were made below it all the same.
    """
    return FinishedSpan(
        f"{names.INVOKE_WORKFLOW} {WORKFLOW}",
        trace.root,
        trace.parent,
        start_ns,
        end_ns,
        {
            names.GEN_AI_OPERATION_NAME: names.INVOKE_WORKFLOW,
            names.GEN_AI_WORKFLOW_NAME: WORKFLOW,
            names.RUN_ID: trace.run_id,
        },
        _to_request(trace),
        error=error,
    )


def _to_request(trace: RunTrace) -> tuple[tuple[SpanContext, str], ...]:
    return () if trace.request is None else ((trace.request, "request"),)


@define(eq=False)
class _Span:
    context: SpanContext
    name: str
    start_ns: int
    attributes: dict[str, AttributeValue] = Factory(dict)
    links: list[tuple[SpanContext, str]] = Factory(list)
    kind: SpanKind = SpanKind.INTERNAL
    end_ns: int = 0
    error: str = ""


@define(eq=False)
class _Timeline:
    """Spans by id, as the events so far have them."""

    _trace: RunTrace
    _spans: dict[int, _Span] = field(init=False, factory=dict)
    _root: _Span = field(init=False)
    _owners: int = field(init=False, default=0)
    _attempts: dict[str, SpanContext] = field(init=False, factory=dict)
    """The latest attempt at each step."""
    _decided: dict[str, SpanContext] = field(init=False, factory=dict)
    """Approvals by step, until an attempt has followed them."""

    def take(self, event: runlog.LogEvent) -> None:
        """Begin and end what an event begins and ends."""
        at, kind = event.create_time.ToNanoseconds(), event.WhichOneof("event")
        match kind:
            case "run_accepted":
                self._accepted(event.run_accepted, at)
            case "run_adopted":
                adopted = event.run_adopted
                self._end(self._trace.owner(self._owners), at, error=LOST, end=LOST)
                self._own(at, replica=adopted.replica_id, reason=adopted.reason)
            case "run_released":
                released, owner = event.run_released, self._trace.owner(self._owners)
                if released.replica_id and (span := self._spans.get(owner.span_id)):
                    span.attributes[names.REPLICA_ID] = released.replica_id
                self._end(owner, at, end=released.reason)
            case "planned":
                self._end(self._trace.plan(event.planned.revision), at)
            case "plan_failed":
                failed = event.plan_failed
                self._end(self._trace.plan(failed.revision), at, error=failed.error.type)
            case "revision_started":
                self._plan(event.revision_started.revision, at)
            case "step_dispatched":
                self._dispatched(event.step_dispatched, at)
            case "step_finished":
                self._finished(event.step_finished, at)
            case "approval_requested":
                self._asked(event.approval_requested, at)
            case "approval_resolved":
                self._resolved(event.approval_resolved, at)
            case "instructions_classified":
                classified = event.instructions_classified
                self._end(self._trace.instructions(classified.approval_id), at)
            case "answer_started":
                self._begin(self._trace.answer(), "compose", at, kind=SpanKind.CLIENT)
            case "run_finished":
                self._ended(event.run_finished, at)

    def spans(self) -> list[FinishedSpan]:
        """All of them, those that did not end before with the end of the run."""
        found = [self._made(span, self._trace.root) for span in self._spans.values()]
        return [*found, self._made(self._root, self._trace.parent)]

    def _made(self, span: _Span, parent: SpanContext | None) -> FinishedSpan:
        return FinishedSpan(
            span.name,
            span.context,
            parent,
            span.start_ns,
            span.end_ns,
            {names.RUN_ID: self._trace.run_id, **span.attributes},
            tuple(span.links),
            span.kind,
            span.error,
        )

    def _begin(
        self,
        context: SpanContext,
        name: str,
        at: int,
        attributes: dict[str, AttributeValue] | None = None,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> _Span:
        """Begin a span, or go on with it: another owner continues what the one before began."""
        given = attributes or {}
        return self._spans.setdefault(context.span_id, _Span(context, name, at, given, kind=kind))

    def _end(self, context: SpanContext, at: int, *, error: str = "", end: str = "") -> None:
        span = self._spans.get(context.span_id)
        if span is None or span.end_ns:
            return
        span.end_ns, span.error = at, error
        if end:
            span.attributes[names.OWNERSHIP_END] = end

    def _accepted(self, accepted: runlog.RunAccepted, at: int) -> None:
        self._root = _Span(
            self._trace.root,
            f"{names.INVOKE_WORKFLOW} {WORKFLOW}",
            at,
            {
                names.GEN_AI_OPERATION_NAME: names.INVOKE_WORKFLOW,
                names.GEN_AI_WORKFLOW_NAME: WORKFLOW,
                names.USER_DIGEST: names.user_digest(accepted.user_id),
            },
        )
        if conversation := accepted.request.conversation_id:
            self._root.attributes[names.GEN_AI_CONVERSATION_ID] = conversation
        self._root.links.extend(_to_request(self._trace))
        self._own(at)
        self._plan(0, at)

    def _own(self, at: int, *, replica: str = "", reason: str = "accepted") -> None:
        before = self._trace.owner(self._owners) if self._owners else None
        self._owners += 1
        span = self._begin(
            self._trace.owner(self._owners), "own run", at, {names.OWNERSHIP_REASON: reason}
        )
        if replica:
            span.attributes[names.REPLICA_ID] = replica
        if before is not None:
            span.links.append((before, "former owner"))

    def _plan(self, revision: int, at: int) -> None:
        given: dict[str, AttributeValue] = {names.REVISION: revision}
        self._begin(self._trace.plan(revision), "plan", at, given, kind=SpanKind.CLIENT)

    def _dispatched(self, dispatched: runlog.StepDispatched, at: int) -> None:
        step_id, revision = dispatched.step_id, dispatched.revision
        context = self._trace.attempt(revision, step_id, dispatched.attempt)
        former = self._attempts.get(step_id)
        if former is not None and former.span_id != context.span_id:
            self._end(former, at, error=REPEATED)
        agent = dispatched.sub_task.assigned_agent_role
        span = self._begin(
            context,
            f"{names.INVOKE_AGENT} {agent}",
            at,
            {
                names.GEN_AI_OPERATION_NAME: names.INVOKE_AGENT,
                names.GEN_AI_AGENT_NAME: agent,
                names.GEN_AI_AGENT_ID: dispatched.agent_id,
                names.REVISION: revision,
                names.STEP_ID: step_id,
                names.ATTEMPT: dispatched.attempt,
            },
            kind=SpanKind.CLIENT,
        )
        if (approval := self._decided.pop(step_id, None)) is not None:
            span.links.append((approval, "approval"))
        self._attempts[step_id] = context

    def _finished(self, finished: runlog.StepFinished, at: int) -> None:
        context, result = self._attempts.get(finished.step_id), finished.result
        if context is None:
            return
        status = AgentExecutionStatus.Name(result.status)
        span = self._spans[context.span_id]
        span.attributes[names.STEP_STATUS] = _word(status, "AGENT_EXECUTION_STATUS_")
        outcome = step_outcome(result)
        if outcome:
            span.attributes[names.STEP_OUTCOME] = _word(Outcome.Name(outcome), "OUTCOME_")
        self._end(context, at, error="" if outcome else result.error.type)

    def _asked(self, requested: runlog.ApprovalRequested, at: int) -> None:
        approval = requested.approval
        proposed = self._attempts.get(approval.step_id)
        given: dict[str, AttributeValue] = {
            names.APPROVAL_ID: approval.approval_id,
            names.STEP_ID: approval.step_id,
            names.GEN_AI_AGENT_NAME: approval.agent_name,
        }
        span = self._begin(self._trace.approval(approval.approval_id), "approval", at, given)
        if proposed is not None:
            self._spans[proposed.span_id].attributes[names.STEP_STATUS] = "awaiting_approval"
            self._end(proposed, at)
            span.links.append((proposed, "proposed by"))

    def _resolved(self, resolved: runlog.ApprovalResolved, at: int) -> None:
        approval = resolved.approval
        context = self._trace.approval(approval.approval_id)
        if (span := self._spans.get(context.span_id)) is None:
            return
        status = ApprovalStatus.Name(approval.status)
        span.attributes[names.APPROVAL_STATUS] = _word(status, "APPROVAL_STATUS_")
        if (decided_by := context_of(resolved.traceparent)) is not None:
            span.links.append((decided_by, "decided by"))
        self._end(context, at)
        self._decided[str(span.attributes[names.STEP_ID])] = context
        if approval.user_instructions:
            self._begin(
                self._trace.instructions(approval.approval_id),
                "classify instructions",
                at,
                {names.APPROVAL_ID: approval.approval_id},
                kind=SpanKind.CLIENT,
            )

    def _ended(self, finished: runlog.RunFinished, at: int) -> None:
        response = finished.response
        self._end(self._trace.owner(self._owners), at, end="finished")
        self._end(self._trace.answer(), at)
        for span in self._spans.values():
            self._end(span.context, at, error=UNFINISHED)
        self._root.end_ns = at
        self._root.attributes[names.RUN_STATUS] = _word(
            RunStatus.Name(response.status), "RUN_STATUS_"
        )
        if response.outcome:
            outcome = Outcome.Name(response.outcome)
            self._root.attributes[names.RUN_OUTCOME] = _word(outcome, "OUTCOME_")
        if response.status == RUN_STATUS_FAILED:
            self._root.error = response.error.type or "failed"


def _word(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()
