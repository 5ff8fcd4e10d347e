"""Fold and decide, driven without any service: a run ends in any order of events."""

import pytest
from gateway_harness.decide_logs import (
    START,
    accepted,
    adopted,
    classified,
    decided,
    event,
    finished,
    planned,
    proposing,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from bos.agent.v1 import AGENT_EXECUTION_STATUS_FAILED, AGENT_EXECUTION_STATUS_SUCCEEDED
from bos.composer.v1 import ComposerOutput
from bos.gateway.v1 import APPROVAL_STATUS_APPROVED, APPROVAL_STATUS_DENIED
from bos.runlog.v1 import AnswerStarted, LogEvent, RunFinished
from bos_chassis.values import to_value_map
from bos_gateway.core.decide import Classify, Command, Compose, MakePlan, Record, RunStep, decide
from bos_gateway.core.fold import fold
from bos_gateway.core.response import composed_response
from bos_gateway.core.run_state import RunState
from bos_testkit.plans import step

pytestmark = pytest.mark.thorough

_SHAPES = [
    [step("a", "echo"), step("b", "echo", "use @{outputs.a.x}"), step("c", "echo", "x", "b")],
    [step("a", "echo"), step("b", "echo"), step("c", "echo", "@{outputs.a.x} @{outputs.b.y}")],
    [step(n, "echo") for n in "abcde"],
    [],
]


@settings(deadline=None)  # how long it takes says how busy the machine is
@given(shape=st.sampled_from(_SHAPES), turns=st.integers(0, 3), data=st.data())
def test_any_interleaving_ends_once_with_every_step_settled_once(
    shape: list, turns: int, data: DataObject
) -> None:
    """Effects answer in any order and any way; the owner may change at any point.

    An owner change forgets everything but the log: the state must be the same when folded anew, and
    what is wanted must follow from it alone.
    """
    events = [accepted(**({"max_turns": turns} if turns else {}))]
    events[0].run_accepted.cards.add(name="echo")
    for _ in range(200):
        state = fold("r", events)
        if state.finished:
            break
        if state.released:
            events += [adopted(), _decision(events, data)]
            continue
        commands = decide(state, START)
        assert commands, "an unfinished run always wants something"
        events += _answer(data.draw(st.sampled_from(commands)), state, shape, data)
    ends = [e for e in events if e.HasField("run_finished")]
    settled = [e.step_finished.step_id for e in events if e.HasField("step_finished")]
    assert len(ends) == 1
    assert events[-1] is ends[0]
    assert sorted(settled) == sorted(s.step_id for s in shape)
    dispatches = [e.step_dispatched.step_id for e in events if e.HasField("step_dispatched")]
    if turns:
        assert len(set(dispatches)) <= turns
    response = ends[0].run_finished.response
    assert [r.agent_name for r in response.agent_results] == [s.agent for s in shape]


def _decision(events: list[LogEvent], data: DataObject) -> LogEvent:
    """A person's, about one of the requests that are open."""
    asked = {
        e.approval_requested.approval.approval_id: e
        for e in events
        if e.HasField("approval_requested")
    }
    for each in events:
        asked.pop(each.approval_resolved.approval.approval_id, None)
    status = data.draw(st.sampled_from([APPROVAL_STATUS_APPROVED, APPROVAL_STATUS_DENIED]))
    instructed = status == APPROVAL_STATUS_APPROVED and len(events) < 30
    instructions = "more" if instructed and data.draw(st.booleans(), label="instructs") else ""
    return decided(data.draw(st.sampled_from(list(asked.values()))), status, instructions)


def _answer(command: Command, state: RunState, shape: list, data: DataObject) -> list[LogEvent]:
    match command:
        case MakePlan():
            return [planned(*shape)]
        case Record(events=recorded):
            return list(recorded)
        case Classify():
            if data.draw(st.booleans(), label="owner dies while classifying"):
                return [adopted()]
            return [classified(command)]
        case Compose():
            started = event(answer_started=AnswerStarted(attempt=state.answer_attempt + 1))
            mortal = state.answer_attempt < 3
            if mortal and data.draw(st.booleans(), label="owner dies while composing"):
                return [started]
            response = composed_response(state, START, ComposerOutput(answer="done"))
            return [started, event(run_finished=RunFinished(response=response))]
        case RunStep():
            mortal = state.steps[command.step_id].attempt < 3
            if mortal and data.draw(st.booleans(), label="owner dies"):
                return [adopted()]
            performing = command.approval is not None and command.approval.approved_actions
            if not performing and data.draw(st.booleans(), label="proposes"):
                requested = proposing(command.step_id)
                number = state.steps[command.step_id].proposals
                requested.approval_requested.approval.approval_id += str(number)
                return [requested]
            status = data.draw(
                st.sampled_from([AGENT_EXECUTION_STATUS_SUCCEEDED, AGENT_EXECUTION_STATUS_FAILED])
            )
            return [finished(command.step_id, status, data=to_value_map({"x": 1, "y": 2}))]
