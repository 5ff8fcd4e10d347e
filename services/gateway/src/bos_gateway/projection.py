"""The log as a client may see it: no internal text, no data that was not asked for. Pure.

Hidden events have no projection, but their sequences count, so a client's cursor stays the log's
own position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.agent.v1 import AgentResult
from bos.common.v1 import TraceEvent
from bos.gateway.v1 import (
    AnswerDeltaEvent,
    AnswerStartedEvent,
    ApprovalRequestedEvent,
    ApprovalResolvedEvent,
    CancelRequestedEvent,
    OrchestratorResponse,
    PlannedEvent,
    RevisionStartedEvent,
    RunAcceptedEvent,
    RunEvent,
    RunFinishedEvent,
    RunResumedEvent,
    Stage,
    StepFinishedEvent,
    StepProgressEvent,
    StepStartedEvent,
)
from bos_plans import stages

if TYPE_CHECKING:
    from datetime import datetime

    from bos.gateway.v1 import AgentRequest
    from bos.runlog.v1 import LogEvent
    from bos_gateway.cursors import Piece


def project(run_id: str, sequence: int, event: LogEvent, request: AgentRequest) -> RunEvent | None:
    """``event`` for a client, or None if clients do not see its kind."""
    public = RunEvent(run_id=run_id, sequence=sequence, create_time=event.create_time)
    match event.WhichOneof("event"):
        case "run_accepted":
            accepted = event.run_accepted.request
            public.run_accepted.CopyFrom(
                RunAcceptedEvent(
                    question=accepted.question,
                    request_id=accepted.request_id,
                    conversation_id=accepted.conversation_id,
                    continues_run_id=accepted.continues_run_id,
                    original_question=event.run_accepted.original_question,
                )
            )
        case "planned":
            public.planned.CopyFrom(_planned(event))
        case "step_dispatched":
            public.step_started.CopyFrom(_step_started(event, request))
        case "step_progressed":
            progressed = event.step_progressed
            public.step_progress.CopyFrom(
                StepProgressEvent(
                    step_id=progressed.step_id,
                    events=[_visible_trace(event, request) for event in progressed.events],
                )
            )
        case "step_finished":
            finished = event.step_finished
            public.step_finished.CopyFrom(
                StepFinishedEvent(
                    step_id=finished.step_id,
                    revision=finished.revision,
                    result=visible_result(finished.result, request),
                )
            )
        case "approval_requested":
            approval = event.approval_requested.approval
            public.approval_requested.CopyFrom(ApprovalRequestedEvent(approval=approval))
        case "approval_resolved":
            approval = event.approval_resolved.approval
            public.approval_resolved.CopyFrom(ApprovalResolvedEvent(approval=approval))
        case "revision_started":
            started = event.revision_started
            public.revision_started.CopyFrom(
                RevisionStartedEvent(
                    revision=started.revision, failed_step_ids=started.failed_step_ids
                )
            )
        case "answer_started":
            attempt = event.answer_started.attempt
            public.answer_started.CopyFrom(AnswerStartedEvent(attempt=attempt))
        case "cancel_requested":
            reason = event.cancel_requested.reason
            public.cancel_requested.CopyFrom(CancelRequestedEvent(reason=reason))
        case "run_adopted":
            public.run_resumed.CopyFrom(RunResumedEvent())
        case "run_finished":
            response = visible_response(event.run_finished.response, request)
            public.run_finished.CopyFrom(RunFinishedEvent(response=response))
        case _:
            return None
    return public


def project_text(run_id: str, sequence: int, piece: Piece, now: datetime) -> RunEvent:
    """A piece of the answer's text for a client, sent now."""
    delta = AnswerDeltaEvent(text=piece.text, attempt=piece.attempt, offset=piece.offset)
    public = RunEvent(run_id=run_id, sequence=sequence, answer_delta=delta)
    public.create_time.FromDatetime(now)
    return public


def visible_response(response: OrchestratorResponse, request: AgentRequest) -> OrchestratorResponse:
    """The response without what the request did not ask for (SPEC A-07, K-17)."""
    visible = OrchestratorResponse()
    visible.CopyFrom(response)
    if not includes_data(request):
        visible.ClearField("data")
        del visible.charts[:]
    if request.trace:
        for result in response.agent_results:
            visible.trace.extend(result.trace)
        # By time; entries of the same time stay as they came (SPEC P-04, X-34).
        visible.trace.sort(key=lambda event: event.create_time.ToNanoseconds())
    else:
        del visible.trace[:]
    results = [visible_result(result, request) for result in response.agent_results]
    del visible.agent_results[:]
    visible.agent_results.extend(results)
    return visible


def visible_result(result: AgentResult, request: AgentRequest) -> AgentResult:
    """One result without what the request did not ask for."""
    visible = AgentResult()
    visible.CopyFrom(result)
    if not request.trace:
        del visible.trace[:]
    if not includes_data(request):
        for field in ("table", "data", "partial_data", "task_description"):
            visible.ClearField(field)
        del visible.charts[:]
    return visible


def includes_data(request: AgentRequest) -> bool:
    """Whether the client wants tabular data; so it is unless it says otherwise."""
    return request.include_data or not request.HasField("include_data")


def _visible_trace(event: TraceEvent, request: AgentRequest) -> TraceEvent:
    """The event in full for who asked for the trace, else only what is going on."""
    if request.trace:
        return event
    return TraceEvent(
        type=event.type, agent=event.agent, message=event.message, create_time=event.create_time
    )


def _planned(event: LogEvent) -> PlannedEvent:
    planned = event.planned
    public = PlannedEvent(
        plan=planned.plan,
        decision=planned.decision,
        stages=[Stage(step_ids=ids) for ids in stages(planned.plan)],
        revision=planned.revision,
    )
    if planned.HasField("intent"):
        public.intent.CopyFrom(planned.intent)
    return public


def _step_started(event: LogEvent, request: AgentRequest) -> StepStartedEvent:
    dispatched = event.step_dispatched
    return StepStartedEvent(
        step_id=dispatched.step_id,
        agent_id=dispatched.agent_id,
        agent_name=dispatched.sub_task.assigned_agent_role,
        # References in the task are resolved by now, so it may hold what was not asked for.
        task=dispatched.sub_task.task if includes_data(request) else "",
        attempt=dispatched.attempt,
        revision=dispatched.revision,
    )
