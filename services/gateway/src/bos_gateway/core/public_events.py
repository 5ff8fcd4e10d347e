"""Public events: projection of the log for clients, without internal text. Pure.

Hidden events have no projection, but their sequences count, so a client's cursor stays the log's
own position.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from google.protobuf.message import Message

from bos.agent.v1 import AgentResult
from bos.common.v1 import TraceEvent
from bos.gateway.v1 import AgentRequest, AnswerDeltaEvent, OrchestratorResponse, RunEvent, Stage
from bos.runlog.v1 import LogEvent
from bos_gateway.core.shown.display import with_display
from bos_plans import stages

# Kinds that are called otherwise where clients see them; what has no name there is hidden.
_CALLED = {
    "step_dispatched": "step_started",
    "step_progressed": "step_progress",
    "run_adopted": "run_resumed",
}


def project(run_id: str, sequence: int, event: LogEvent, request: AgentRequest) -> RunEvent | None:
    """``event`` for a client, or None if clients do not see its kind.

    What a public event holds under the same name as the stored one is the same, but for what the
    request did not ask for.
    """
    kind = event.WhichOneof("event") or ""
    name = _CALLED.get(kind, kind)
    if name not in RunEvent.DESCRIPTOR.fields_by_name:
        return None
    public = RunEvent(run_id=run_id, sequence=sequence, create_time=event.create_time)
    shown = getattr(public, name)
    shown.SetInParent()
    _copy(getattr(event, kind), shown)
    if kind == "run_accepted":
        _copy(event.run_accepted.request, shown)
    elif kind == "planned":
        shown.stages.extend(Stage(step_ids=ids) for ids in stages(event.planned.plan))
        if not request.trace:
            shown.ClearField("trace")
    elif kind == "step_dispatched":
        sub_task = event.step_dispatched.sub_task
        shown.agent_name = sub_task.assigned_agent_role
        # References in the task are resolved by now, so it may hold what was not asked for.
        if includes_data(request):
            _copy(sub_task, shown)
    elif kind == "step_progressed" and not request.trace:
        del shown.events[:]
        shown.events.extend(map(_without_details, event.step_progressed.events))
    elif kind == "step_finished":
        _hide_in_result(shown.result, request)
    elif kind in ("approval_requested", "approval_resolved"):
        # Also once decided, so that the history shows what was.
        with_display(shown.approval, whole=True)
    elif kind == "run_finished":
        _hide_in_response(shown.response, request)
    return public


def project_text(run_id: str, sequence: int, piece: Piece, now: datetime) -> RunEvent:
    """A piece of the answer's text for a client, sent now."""
    delta = AnswerDeltaEvent(text=piece.text, attempt=piece.attempt, offset=piece.offset)
    return RunEvent(run_id=run_id, sequence=sequence, create_time=now, answer_delta=delta)


def visible_response(response: OrchestratorResponse, request: AgentRequest) -> OrchestratorResponse:
    """The response without what the request did not ask for."""
    visible = OrchestratorResponse()
    visible.CopyFrom(response)
    _hide_in_response(visible, request)
    return visible


def includes_data(request: AgentRequest) -> bool:
    """Whether the client wants tabular data, the default."""
    return request.include_data or not request.HasField("include_data")


def _copy(source: Message, target: Message) -> None:
    """Copy the fields that both have by the same name."""
    names = target.DESCRIPTOR.fields_by_name
    shared = {field.name: value for field, value in source.ListFields() if field.name in names}
    target.MergeFrom(type(target)(**shared))


def _hide_in_response(response: OrchestratorResponse, request: AgentRequest) -> None:
    if not includes_data(request):
        response.ClearField("data")
        response.ClearField("charts")
    if request.trace:
        for result in response.agent_results:
            response.trace.extend(result.trace)
        # By time; entries of the same time stay as they came.
        response.trace.sort(key=lambda event: event.create_time.ToNanoseconds())
    else:
        response.ClearField("trace")
    for result in response.agent_results:
        _hide_in_result(result, request)


def _hide_in_result(result: AgentResult, request: AgentRequest) -> None:
    if not request.trace:
        result.ClearField("trace")
    if not includes_data(request):
        for field in ("table", "data", "partial_data", "task_description", "charts"):
            result.ClearField(field)


def _without_details(event: TraceEvent) -> TraceEvent:
    """The trace event without details."""
    return TraceEvent(
        type=event.type, agent=event.agent, message=event.message, create_time=event.create_time
    )


class Cursor(NamedTuple):
    """Position of a follower in a run's stream."""

    sequence: int = 0
    """The last event seen."""
    offset: int = 0
    """Characters seen of the text behind the last AnswerStarted up to that event."""

    def moved(self, sequence: int, shown: LogEvent | Piece) -> Cursor:
        """The cursor behind what :meth:`RunFeed.follow` has yielded."""
        if isinstance(shown, Piece):
            return Cursor(sequence, shown.offset + len(shown.text))
        return Cursor(sequence, 0 if shown.HasField("answer_started") else self.offset)


class Piece(NamedTuple):
    """A part of the answer's text."""

    attempt: int
    offset: int
    """Characters of the attempt before it."""
    text: str
