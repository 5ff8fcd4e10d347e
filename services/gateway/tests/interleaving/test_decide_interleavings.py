"""Fold and decide, driven without any service: a run ends in any order of events, and in no other.

An owner change forgets everything but the log: the state must be the same when folded anew, and
what is wanted must follow from it alone.
"""

from collections import Counter

import pytest
from gateway_harness.run_logs import (
    FAILED,
    IRREVERSIBLE,
    SKIPPED,
    START,
    SUCCEEDED,
    accepted,
    acting,
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

from bos.common.v1 import AgentError
from bos.composer.v1 import ComposerOutput
from bos.gateway.v1 import APPROVAL_STATUS_APPROVED, APPROVAL_STATUS_DENIED
from bos.planner.v1 import PlannerDecision, Step
from bos.runlog.v1 import AnswerStarted, LogEvent, PlanFailed, RunFinished
from bos_chassis.values import to_value_map
from bos_gateway.core.decide import Classify, Command, Compose, MakePlan, Record, RunStep, decide
from bos_gateway.core.fold import fold
from bos_gateway.core.response import composed_response
from bos_gateway.core.revision import completed, revision_problems
from bos_gateway.core.revision_context import journal, revision_context
from bos_gateway.core.run_state import RunState
from bos_testkit.plans import step

pytestmark = pytest.mark.thorough

_ERRORS = ["HttpError", "QueryError", "SandboxViolation", "OutcomeUnknown", ""]
_TASKS = ["look", "use @{outputs.NEED.x}", "use @{outputs.NEED.nowhere}"]
_CARDS = (acting(IRREVERSIBLE), acting(IRREVERSIBLE, protected=True, name="asker"))


@pytest.mark.requirement("A-20")
@settings(deadline=None)  # how long it takes says how busy the machine is
@given(
    revisions=st.integers(0, 3), steps=st.integers(1, 8), turns=st.integers(0, 4), data=st.data()
)
def test_any_run_ends_once_with_every_step_settled_once(
    revisions: int, steps: int, turns: int, data: DataObject
) -> None:
    """Effects answer in any order and any way, plans are of any kind, and owners change."""
    request = {"max_turns": turns} if turns else {}
    limits = {"max_revisions": revisions, "max_steps": steps, "max_concurrency": 2}
    events = [accepted(*_CARDS, request=request, **limits)]
    for _ in range(400):
        state = fold("r", events)
        if state.finished:
            break
        if state.released:
            events += [adopted(), _decision(events, data)]
            continue
        commands = decide(state, START)
        assert commands, "an unfinished run always wants something"
        events += _answer(data.draw(st.sampled_from(commands)), state, data)
    kinds = Counter(each.WhichOneof("event") for each in events)
    assert kinds["run_finished"] == 1
    assert events[-1].HasField("run_finished")
    assert kinds["revision_started"] <= revisions
    assert kinds["planned"] + kinds["plan_failed"] == 1 + kinds["revision_started"]
    sent = {
        (each.step_dispatched.revision, each.step_dispatched.step_id)
        for each in events
        if each.HasField("step_dispatched")
    }
    assert not turns or len(sent) <= turns
    _nothing_twice(events)
    assert state.response is not None
    ids = [result.agent_id for result in state.response.agent_results]
    assert len(set(ids)) == len(ids)
    assert {step.agent_id for step in completed(state)} <= set(ids), "what was achieved stays"
    assert all(each.settled for each in state.steps.values())
    assert len(journal(state)) >= 2


def _nothing_twice(events: list[LogEvent]) -> None:
    """A step settles once in its plan; what has succeeded, or may have acted, never goes again."""
    settled: Counter[tuple[int, str]] = Counter()
    succeeded: set[str] = set()
    acted: set[str] = set()
    for each in events:
        if each.HasField("step_finished"):
            done = each.step_finished
            settled[done.revision, done.step_id] += 1
            if done.result.status == SUCCEEDED:
                succeeded.add(done.step_id)
        elif each.HasField("step_dispatched") and each.step_dispatched.attempt == 1:
            sent = each.step_dispatched
            assert sent.step_id not in succeeded
            if sent.sub_task.assigned_agent_role == "actor":
                assert sent.sub_task.task not in acted, "an effect could have been doubled"
                acted.add(sent.sub_task.task)
    assert all(count == 1 for count in settled.values())


def _decision(events: list[LogEvent], data: DataObject) -> LogEvent:
    """A person's, about one of the requests that are open."""
    asked = {
        each.approval_requested.approval.approval_id: each
        for each in events
        if each.HasField("approval_requested")
    }
    for each in events:
        asked.pop(each.approval_resolved.approval.approval_id, None)
    status = data.draw(st.sampled_from([APPROVAL_STATUS_APPROVED, APPROVAL_STATUS_DENIED]))
    instructed = status == APPROVAL_STATUS_APPROVED and len(events) < 30
    instructions = "more" if instructed and data.draw(st.booleans(), label="instructs") else ""
    return decided(data.draw(st.sampled_from(list(asked.values()))), status, instructions)


def _answer(command: Command, state: RunState, data: DataObject) -> list[LogEvent]:
    match command:
        case MakePlan(revision=0):
            return [_plan(state, 0, data)]
        case MakePlan(revision=revision):
            how = data.draw(st.sampled_from(["plan", "plan", "plan", "none", "fails", "dies"]))
            if how == "dies":
                return [adopted()]
            if how == "plan":
                made = _plan(state, revision, data)
                assert revision_context(state).revision == revision
                if revision_problems(state, made.planned.plan) == ("", []):
                    return [made]
            if how == "none":
                return [planned(revision=revision)]
            error = AgentError(type="InvalidPlan", message="It cannot be run.")
            return [event(plan_failed=PlanFailed(revision=revision, error=error))]
        case Record(events=recorded):
            return list(recorded)
        case Classify():
            dies = data.draw(st.booleans(), label="owner dies while classifying")
            return [adopted() if dies else classified(command)]
        case Compose():
            started = event(answer_started=AnswerStarted(attempt=state.answer_attempt + 1))
            mortal = state.answer_attempt < 3
            if mortal and data.draw(st.booleans(), label="owner dies while composing"):
                return [started]
            response = composed_response(state, START, ComposerOutput(answer="done"))
            return [started, event(run_finished=RunFinished(response=response))]
        case RunStep():
            return [_ended(command, state, data)]
    raise AssertionError(command)


def _ended(command: RunStep, state: RunState, data: DataObject) -> LogEvent:
    if command.attempt < 3 and data.draw(st.booleans(), label="owner dies"):
        return adopted()
    found = state.steps[command.step_id]
    performing = command.approval is not None and command.approval.approved_actions
    if found.step.agent == "asker" and not performing and data.draw(st.booleans(), label="asks"):
        requested = proposing(command.step_id, number=found.proposals)
        requested.approval_requested.revision = command.revision
        requested.approval_requested.approval.approval_id += f"/{command.revision}"
        return requested
    status = data.draw(st.sampled_from([SUCCEEDED, FAILED, FAILED, SKIPPED]))
    thin = status == SUCCEEDED and data.draw(st.booleans(), label="thin")
    ending = finished(
        command.step_id,
        status,
        revision=command.revision,
        answer="",
        data=to_value_map({} if thin or status != SUCCEEDED else {"x": 1}),
    )
    result = ending.step_finished.result
    result.agent_id, result.agent_name = found.agent_id, found.step.agent
    ending.step_finished.attempts = command.attempt
    if status != SUCCEEDED:
        result.error.type = data.draw(st.sampled_from(_ERRORS))
    return ending


def _plan(state: RunState, revision: int, data: DataObject) -> LogEvent:
    """Up to three steps that need those before them, or what was achieved."""
    known = [each.step.step_id for each in completed(state)] if revision else []
    made: list[Step] = []
    for number in range(data.draw(st.integers(1, 3))):
        name = f"{data.draw(st.sampled_from('xyz'))}{number}"
        agent = data.draw(st.sampled_from(["echo", "asker", "actor"]))
        need = data.draw(st.sampled_from(known)) if known else ""
        task = data.draw(st.sampled_from(_TASKS if need else _TASKS[:1])).replace("NEED", need)
        # Two plans may well come upon the same effect.
        task = f"{task} and act {number}" if agent == "actor" else task
        if name in known:
            name = f"{name}_{revision}"
        made.append(step(name, agent, task, *([need] if need else [])))
        known.append(name)
    confidence = data.draw(st.sampled_from([0.1, 0.9]))
    return planned(*made, revision=revision, decision=PlannerDecision(confidence=confidence))
