"""Fold and decide, driven without any service: what a run wants next."""

from datetime import timedelta

import pytest
from gateway_harness.run_logs import (
    COMPOSES,
    FAILED,
    IRREVERSIBLE,
    LIMIT,
    SKIPPED,
    START,
    SUCCEEDED,
    accepted,
    acting,
    adopted,
    after,
    event,
    finished,
    planned,
    proposing,
    record_of,
    recorded,
    running,
    then,
    wanted,
)

from bos.agent.v1 import AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION, SIDE_EFFECT_CLASS_NONE
from bos.common.v1 import Clarification, ClarifyingQuestion
from bos.gateway.v1 import (
    APPROVAL_STATUS_EXPIRED,
    RUN_STATUS_CLARIFICATION_NEEDED,
    RUN_STATUS_FAILED,
)
from bos.runlog.v1 import LogEvent, RunFinished, StepDispatched
from bos_errors import AgentErrorType
from bos_gateway.core.decide import MakePlan, Record, decide, next_wake
from bos_gateway.core.fold import apply, fold
from bos_gateway.core.run_state import BrokenLog, RunState, UnknownEvent
from bos_testkit.plans import step

ONE = planned(step("a", "echo"))
TWO_AT_ONCE = accepted(max_concurrency=2)


def error_of(state: RunState, step_id: str) -> tuple[int, str]:
    result = state.steps[step_id].result
    return result.status, result.error.type


@pytest.mark.requirement("C-28")
def test_run_wants_a_plan_then_recorded_steps_then_the_answer() -> None:
    state = fold("r", [accepted()])
    assert decide(state, START) == [MakePlan(0)]
    apply(state, ONE)
    (dispatched,) = record_of(state)
    assert dispatched.step_dispatched.attempt == 1
    apply(state, dispatched)
    assert running(state).sub_task == dispatched.step_dispatched.sub_task
    assert then(state, finished("a")) == COMPOSES


@pytest.mark.requirement("C-05", "C-11", "C-28")
def test_step_that_becomes_ready_does_not_push_out_one_under_way() -> None:
    """A step earlier in planner order must wait for a slot like any other."""
    plan = planned(step("x", "echo", "x", "p"), step("p", "echo"), step("a", "echo"))
    state = fold("r", [TWO_AT_ONCE, plan])
    assert wanted(state) == ["p", "a"]
    assert then(state, finished("p")) == ["x", "a"]
    state = fold("r", [TWO_AT_ONCE, planned(*(step(n, "echo") for n in "abc"))])
    assert wanted(state) == ["a", "b"], "within the limit of concurrency"
    assert then(state, finished("b")) == ["a", "c"]


@pytest.mark.parametrize(
    ("effect", "stopped", "again"),
    [
        (IRREVERSIBLE, AgentErrorType.OUTCOME_UNKNOWN, False),
        (SIDE_EFFECT_CLASS_NONE, AgentErrorType.DEADLINE_EXCEEDED, True),
    ],
)
def test_step_that_was_stopped_or_interrupted_may_have_acted(
    effect: int, stopped: str, again: bool
) -> None:
    start = accepted(acting(effect, name="echo"))
    plan = planned(step("a", "echo"), step("b", "echo", "x", "a"))
    state = after(plan, start=start)
    wanted(state, START + LIMIT)
    # A step that was never sent has not acted, with any tools.
    errors = [error_of(state, name) for name in "ab"]
    assert errors == [(FAILED, stopped), (FAILED, AgentErrorType.DEADLINE_EXCEEDED)]
    state = after(plan, start=start)
    apply(state, adopted())
    if again:
        assert [e.step_dispatched.attempt for e in record_of(state)] == [2]
    else:
        wanted(state)
        assert error_of(state, "a") == (FAILED, AgentErrorType.OUTCOME_UNKNOWN)


def test_step_of_large_inputs_is_decided_on_alone() -> None:
    steps = (step(name, "echo", "@{outputs.first.answer}", "first") for name in "ab")
    state = after(planned(step("first", "echo"), *steps))
    apply(state, finished("first", answer="x" * 70_000))
    assert [recorded(state) for _ in range(2)] == [["step_dispatched"]] * 2


def test_inputs_that_are_too_large_end_their_step_only() -> None:
    state = after(
        planned(
            step("a", "echo"),
            step("b", "echo", "@{outputs.a.answer} " * 20),
            step("c", "echo", "@{outputs.a.answer}"),
        )
    )
    assert then(state, finished("a", answer="x" * 200_000)) == ["c"]
    assert error_of(state, "b") == (FAILED, AgentErrorType.RESULT_TOO_LARGE)
    assert state.steps["b"].sub_task is None


@pytest.mark.parametrize(("seconds", "over"), [(90, False), (92, True)])
def test_steps_end_before_run_so_that_answer_can_be_composed(seconds: int, over: bool) -> None:
    state = after(ONE)
    assert next_wake(state) == START + timedelta(seconds=91)
    assert wanted(state, START + timedelta(seconds=seconds)) == (COMPOSES if over else ["a"])
    assert state.steps["a"].settled is over


@pytest.mark.parametrize(("seconds", "over"), [(99, False), (100, True)])
def test_run_that_is_never_planned_ends_at_its_deadline(seconds: int, over: bool) -> None:
    state = fold("r", [accepted()])
    (command,) = decide(state, START + timedelta(seconds=seconds))
    assert isinstance(command, Record) is over
    if isinstance(command, Record):
        assert command.events[-1].run_finished.response.status == RUN_STATUS_FAILED


def test_unknown_event_is_not_guessed_at() -> None:
    with pytest.raises(UnknownEvent):
        fold("r", [accepted(), LogEvent()])


@pytest.mark.requirement("A-10")
@pytest.mark.parametrize(
    "events",
    [
        [planned()],
        [accepted(), accepted()],
        [accepted(), event(run_finished=RunFinished()), planned()],
        [accepted(), ONE, finished("a"), finished("a")],
        [accepted(), ONE, finished("b")],
    ],
    ids=["no start", "two starts", "after the end", "settled twice", "unknown step"],
)
def test_log_that_contradicts_itself_is_refused(events: list[LogEvent]) -> None:
    with pytest.raises(BrokenLog):
        fold("r", events)


@pytest.mark.requirement("A-02", "A-07", "C-36")
def test_steps_beyond_turns_are_skipped_and_attempts_take_none() -> None:
    start = accepted(request={"max_turns": 1})
    state = fold("r", [start, planned(step("a", "echo"), step("b", "echo"))])
    assert wanted(state) == ["a"]
    sent = state.steps["a"].sub_task
    apply(state, event(step_dispatched=StepDispatched(step_id="a", sub_task=sent, attempt=2)))
    assert then(state, finished("a")) == COMPOSES
    assert error_of(state, "b") == (SKIPPED, "MaxTurnsReached")


# A step that has a question for the user ends the run, and lets nothing new begin.

QUESTION = Clarification(questions=[ClarifyingQuestion(question="When?", options=["2025"])])
ASKS = finished("a", AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION, clarification=QUESTION)


@pytest.mark.requirement("C-23", "D-04")
@pytest.mark.parametrize("outcome", [SUCCEEDED, FAILED], ids=["", "before another plan"])
def test_question_of_a_step_starts_nothing_and_waits_for_running(outcome: int) -> None:
    state = after(planned(step("a", "echo"), step("b", "echo"), step("c", "echo", "x", "b")))
    assert then(state, ASKS) == ["b"]
    assert error_of(state, "c")[1] == "NotRun"
    assert then(state, finished("b", outcome)) == []
    assert state.response.status == RUN_STATUS_CLARIFICATION_NEEDED
    assert state.response.clarification.questions[0].options == ["2025"]


def test_question_of_a_step_closes_undecided_requests() -> None:
    card = acting(IRREVERSIBLE, protected=True)
    state = after(planned(step("a", "echo"), step("b", "actor")), start=accepted(card))
    apply(state, proposing("b"))
    apply(state, ASKS)
    closed, end = record_of(state)
    assert closed.approval_resolved.approval.status == APPROVAL_STATUS_EXPIRED
    assert end.run_finished.response.status == RUN_STATUS_CLARIFICATION_NEEDED


def test_interrupted_step_is_not_restarted_behind_a_question() -> None:
    state = after(planned(step("a", "echo"), step("b", "echo")))
    assert then(state, ASKS, adopted()) == []
    assert error_of(state, "b")[1] == "NotRun"


@pytest.mark.parametrize(
    ("profiles", "chosen"),
    [
        ({}, {"sql": "", "code": ""}),
        ({"sql": "research"}, {"sql": "research", "code": ""}),
        ({"sql": "research", "*": "common"}, {"sql": "research", "code": "common"}),
    ],
)
@pytest.mark.requirement("N-07")
def test_dispatch_names_the_profile_that_the_log_froze(
    profiles: dict[str, str], chosen: dict[str, str]
) -> None:
    start = accepted()
    start.run_accepted.settings.api_keys_config_refs.update(profiles)
    state = fold("r", [start, planned(step("a", "sql"), step("b", "code"))])
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    tasks = [each.step_dispatched.sub_task for each in record.events]
    assert {task.assigned_agent_role: task.api_keys_config_ref for task in tasks} == chosen
    assert state.request.settings.api_keys_config_refs == profiles  # asking a map adds to it
