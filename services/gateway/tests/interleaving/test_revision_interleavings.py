"""Fold and decide with failing plans: every run ends, and nothing is done twice."""

from collections import Counter

import pytest
from gateway_harness.revised_logs import (
    FAILED,
    SKIPPED,
    START,
    SUCCEEDED,
    accepted,
    acting,
    event,
    planned,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from bos.agent.v1 import SIDE_EFFECT_CLASS_IRREVERSIBLE, AgentResult
from bos.common.v1 import AgentError
from bos.composer.v1 import ComposerOutput
from bos.planner.v1 import PlannerDecision, Step
from bos.runlog.v1 import AnswerStarted, LogEvent, PlanFailed, RunAdopted, RunFinished, StepFinished
from bos_chassis.values import to_value_map
from bos_gateway.core.decide import Command, Compose, MakePlan, Record, RunStep, decide
from bos_gateway.core.fold import fold
from bos_gateway.core.response import composed_response
from bos_gateway.core.revision import completed, revision_problems
from bos_gateway.core.revision_context import journal, revision_context
from bos_gateway.core.run_state import RunState
from bos_testkit.plans import step

pytestmark = pytest.mark.thorough

_ERRORS = ["HttpError", "QueryError", "SandboxViolation", "OutcomeUnknown", ""]
_TASKS = ["look", "use @{outputs.NEED.x}", "use @{outputs.NEED.nowhere}"]


@pytest.mark.requirement("A-20")
@settings(deadline=None)  # how long it takes says how busy the machine is
@given(revisions=st.integers(0, 3), steps=st.integers(1, 8), data=st.data())
def test_any_run_with_revisions_ends_once_and_repeats_nothing(
    revisions: int, steps: int, data: DataObject
) -> None:
    """Effects answer in any order and any way, plans are of any kind, and owners change."""
    card = acting(SIDE_EFFECT_CLASS_IRREVERSIBLE)
    events = [accepted(card, max_revisions=revisions, max_steps=steps)]
    for _ in range(300):
        state = fold("r", events)
        if state.finished:
            break
        commands = decide(state, START)
        assert commands, "an unfinished run always wants something"
        events += _answer(data.draw(st.sampled_from(commands)), state, data)
    kinds = [each.WhichOneof("event") for each in events]
    assert kinds.count("run_finished") == 1
    assert kinds.count("revision_started") <= revisions
    assert kinds.count("planned") + kinds.count("plan_failed") == 1 + kinds.count(
        "revision_started"
    )
    _nothing_twice(events)
    _results_are_those_that_stay(state)
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


def _results_are_those_that_stay(state: RunState) -> None:
    assert state.response is not None
    ids = [result.agent_id for result in state.response.agent_results]
    assert len(set(ids)) == len(ids)
    kept = {step.agent_id for step in completed(state)}
    assert kept <= set(ids)


def _answer(command: Command, state: RunState, data: DataObject) -> list[LogEvent]:
    match command:
        case MakePlan(revision=revision):
            if revision == 0:
                return [_plan(state, 0, data)]
            how = data.draw(st.sampled_from(["plan", "plan", "plan", "none", "fails", "dies"]))
            if how == "dies":
                return [event(run_adopted=RunAdopted(reason="lease_expired"))]
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
        case Compose():
            started = event(answer_started=AnswerStarted(attempt=state.answer_attempt + 1))
            response = composed_response(state, START, ComposerOutput(answer="done"))
            return [started, event(run_finished=RunFinished(response=response))]
        case RunStep():
            return [_ended(command, state, data)]
    raise AssertionError(command)


def _ended(command: RunStep, state: RunState, data: DataObject) -> LogEvent:
    if command.attempt < 3 and data.draw(st.booleans(), label="owner dies"):
        return event(run_adopted=RunAdopted(reason="lease_expired"))
    status = data.draw(st.sampled_from([SUCCEEDED, FAILED, FAILED, SKIPPED]))
    step_state = state.steps[command.step_id]
    result = AgentResult(
        status=status, agent_id=step_state.agent_id, agent_name=step_state.step.agent
    )
    if status == SUCCEEDED:
        thin = data.draw(st.booleans(), label="thin")
        result.data.CopyFrom(to_value_map({} if thin else {"x": 1}))
    else:
        result.error.type = data.draw(st.sampled_from(_ERRORS))
    body = StepFinished(
        step_id=command.step_id, revision=command.revision, result=result, attempts=command.attempt
    )
    return event(step_finished=body)


def _plan(state: RunState, revision: int, data: DataObject) -> LogEvent:
    """Up to three steps that need those before them, or what was achieved."""
    known = [each.step.step_id for each in completed(state)] if revision else []
    made: list[Step] = []
    for number in range(data.draw(st.integers(1, 3))):
        name = f"{data.draw(st.sampled_from('xyz'))}{number}"
        agent = data.draw(st.sampled_from(["echo", "echo", "actor"]))
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
