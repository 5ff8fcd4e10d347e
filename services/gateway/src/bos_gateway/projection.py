"""The log as a client may see it: no internal text, no data that was not asked for. Pure.

Hidden events have no projection, but their sequences count, so a client's cursor stays the log's
own position (SPEC A-07, R-04).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.agent.v1 import AgentResult
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
    from bos.common.v1 import ValueMap
    from bos.gateway.v1 import AgentRequest
    from bos.runlog.v1 import LogEvent

_TABLE_FIELDS = ("table", "rows")


def project(run_id: str, sequence: int, event: LogEvent, request: AgentRequest) -> RunEvent | None:
    """``event`` for a client, or None if clients do not see its kind."""
    public = RunEvent(run_id=run_id, sequence=sequence, create_time=event.create_time)
    match event.WhichOneof("event"):
        case "run_accepted":
            accepted = event.run_accepted.request
            public.run_accepted.CopyFrom(
                RunAcceptedEvent(question=accepted.question, request_id=accepted.request_id)
            )
        case "planned":
            public.planned.CopyFrom(_planned(event))
        case "step_dispatched":
            public.step_started.CopyFrom(_step_started(event))
        case "step_progressed":
            progressed = event.step_progressed
            public.step_progress.CopyFrom(
                StepProgressEvent(step_id=progressed.step_id, events=progressed.events)
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
        case "answer_delta":
            delta = event.answer_delta
            public.answer_delta.CopyFrom(AnswerDeltaEvent(text=delta.text, attempt=delta.attempt))
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


def visible_response(response: OrchestratorResponse, request: AgentRequest) -> OrchestratorResponse:
    """The response without what the request did not ask for (SPEC A-07, K-17)."""
    visible = OrchestratorResponse()
    visible.CopyFrom(response)
    if not _includes_data(request):
        visible.ClearField("data")
    if not request.trace:
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
    if not _includes_data(request):
        visible.ClearField("table")
        for fields in (visible.data, visible.partial_data):
            _without_tables(fields)
    return visible


def _includes_data(request: AgentRequest) -> bool:
    return request.include_data or not request.HasField("include_data")


def _without_tables(fields: ValueMap) -> None:
    for name in _TABLE_FIELDS:
        fields.fields.pop(name, None)


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


def _step_started(event: LogEvent) -> StepStartedEvent:
    dispatched = event.step_dispatched
    return StepStartedEvent(
        step_id=dispatched.step_id,
        agent_id=dispatched.agent_id,
        agent_name=dispatched.sub_task.assigned_agent_role,
        task=dispatched.sub_task.task,
        attempt=dispatched.attempt,
        revision=dispatched.revision,
    )
