"""Clients see of the log what is listed here, and nothing that was only given the same name."""

import pytest
from google.protobuf.message import Message

from bos.gateway.v1 import AgentRequest, RunEvent
from bos.runlog.v1 import LogEvent, SubTask
from bos_gateway.core.public_events import project

# Public name of each kind, and its fields that are the log's own.
SHOWN = {
    "run_accepted": ("run_accepted", {"original_question"}),
    "planned": ("planned", {"revision", "plan", "decision", "intent", "trace", "usage"}),
    "step_dispatched": ("step_started", {"revision", "step_id", "agent_id", "attempt"}),
    "step_progressed": ("step_progress", {"revision", "step_id", "events"}),
    "step_finished": ("step_finished", {"revision", "step_id", "result"}),
    "approval_requested": ("approval_requested", {"approval"}),
    "approval_resolved": ("approval_resolved", {"approval"}),
    "revision_started": ("revision_started", {"revision", "failed_step_ids"}),
    "answer_started": ("answer_started", {"attempt"}),
    "cancel_requested": ("cancel_requested", {"reason"}),
    "run_adopted": ("run_resumed", set()),
    "run_finished": ("run_finished", {"response"}),
}
KINDS = [field.name for field in LogEvent.DESCRIPTOR.oneofs_by_name["event"].fields]


def test_client_sees_of_a_kind_what_is_listed_or_nothing() -> None:
    for kind in KINDS:
        event = LogEvent()
        getattr(event, kind).SetInParent()
        public = project("r", 1, event, AgentRequest())
        if kind not in SHOWN:
            assert public is None, kind
            continue
        name, shared = SHOWN[kind]
        assert public is not None, kind
        assert public.WhichOneof("event") == name
        assert both(getattr(event, kind), getattr(public, name)) == shared, kind


def test_client_sees_of_a_request_what_is_listed() -> None:
    shared = both(AgentRequest(), RunEvent().run_accepted)
    assert shared == {"question", "request_id", "conversation_id", "continues_run_id", "model"}


def test_client_sees_of_what_is_sent_to_an_agent_what_is_listed() -> None:
    assert both(SubTask(), RunEvent().step_started) == {"task", "tool_name", "sub_task_input"}


@pytest.mark.requirement("P-10")
def test_inputs_of_a_step_are_shown_with_data_alone() -> None:
    event = LogEvent()
    event.step_dispatched.sub_task.sub_task_input["rows"].int64_value = 5
    shown = project("r", 1, event, AgentRequest())
    hidden = project("r", 1, event, AgentRequest(include_data=False))
    assert shown.step_started.sub_task_input["rows"].int64_value == 5
    assert not hidden.step_started.sub_task_input


def test_trace_of_planning_is_shown_if_the_trace_was_asked_for() -> None:
    event = LogEvent()
    event.planned.trace.add(message="Chose sql")
    event.planned.usage.model_calls = 1
    for request in (AgentRequest(), AgentRequest(trace=True)):
        shown = project("r", 1, event, request)
        assert [each.message for each in shown.planned.trace] == ["Chose sql"] * request.trace
        assert shown.planned.usage.model_calls == 1


def both(stored: Message, public: Message) -> set[str]:
    return set(stored.DESCRIPTOR.fields_by_name) & set(public.DESCRIPTOR.fields_by_name)


@pytest.mark.requirement("Q-09")
def test_decided_approval_still_shows_what_was_to_be_done() -> None:
    for kind in ("approval_requested", "approval_resolved"):
        event = LogEvent()
        action = getattr(event, kind).approval.actions.add(tool="send", summary="Mail it")
        action.arguments.fields["to"].string_value = "ann"
        public = project("r", 1, event, AgentRequest())
        assert public is not None
        (shown,) = getattr(public, kind).approval.display.actions
        assert [(each.label, list(each.lines)) for each in shown.arguments] == [("to", ["ann"])]
