"""Fold and decide, driven without any service: what a run wants next."""

from datetime import timedelta

import pytest
from gateway_harness.decide_logs import (
    LIMIT,
    START,
    accepted,
    adopted,
    event,
    finished,
    planned,
    recorded,
    wanted,
)

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    AGENT_EXECUTION_STATUS_SKIPPED,
    SIDE_EFFECT_CLASS_IRREVERSIBLE,
    SIDE_EFFECT_CLASS_NONE,
    AgentCard,
    Tool,
)
from bos.common.v1 import Clarification, ClarifyingQuestion
from bos.gateway.v1 import RUN_STATUS_CANCELLED, RUN_STATUS_CLARIFICATION_NEEDED, RUN_STATUS_FAILED
from bos.runlog.v1 import CancelRequested, LogEvent, RunFinished, StepDispatched
from bos_errors import AgentErrorType
from bos_gateway.core.decide import Compose, MakePlan, Record, RunStep, decide, next_wake
from bos_gateway.core.fold import apply, fold
from bos_gateway.core.run_state import BrokenLog, UnknownEvent
from bos_testkit.plans import step


def test_accepted_run_wants_a_plan() -> None:
    assert decide(fold("r", [accepted()]), START) == [MakePlan(0)]


@pytest.mark.requirement("C-05", "C-11", "C-28")
def test_ready_steps_run_within_the_limit_of_concurrency() -> None:
    state = fold("r", [accepted(), planned(*(step(n, "echo") for n in "abc"))])
    assert wanted(state) == ["a", "b"]


@pytest.mark.requirement("C-28")
def test_step_runs_only_once_its_dispatch_is_in_the_log() -> None:
    state = fold("r", [accepted(), planned(step("a", "echo"))])
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    assert [e.step_dispatched.attempt for e in record.events] == [1]
    apply(state, record.events[0])
    (command,) = decide(state, START)
    assert isinstance(command, RunStep)
    assert command.sub_task == record.events[0].step_dispatched.sub_task


def test_step_that_becomes_ready_does_not_push_out_one_under_way() -> None:
    """A step earlier in planner order must wait for a slot like any other."""
    plan = planned(step("x", "echo", "x", "p"), step("p", "echo"), step("a", "echo"))
    state = fold("r", [accepted(), plan])
    assert wanted(state) == ["p", "a"]
    apply(state, finished("p"))
    assert wanted(state) == ["x", "a"]
    state = fold("r", [accepted(), planned(*(step(n, "echo") for n in "abc"))])
    assert wanted(state) == ["a", "b"]
    apply(state, finished("b"))
    assert wanted(state) == ["a", "c"]


@pytest.mark.parametrize(
    ("side_effect", "again"),
    [(SIDE_EFFECT_CLASS_NONE, True), (SIDE_EFFECT_CLASS_IRREVERSIBLE, False)],
)
def test_step_interrupted_by_a_change_of_owner(side_effect: int, again: bool) -> None:
    start = accepted()
    card = AgentCard(name="echo", tools=[Tool(name="act", side_effect=side_effect)])
    start.run_accepted.cards.append(card)
    state = fold("r", [start, planned(step("a", "echo"))])
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    apply(state, record.events[0])
    apply(state, adopted())
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    if again:
        assert [e.step_dispatched.attempt for e in record.events] == [2]
    else:
        assert record.events[-1].step_finished.result.error.type == "OutcomeUnknown"


@pytest.mark.parametrize(
    ("effect", "outcome"),
    [
        (SIDE_EFFECT_CLASS_IRREVERSIBLE, AgentErrorType.OUTCOME_UNKNOWN),
        (SIDE_EFFECT_CLASS_NONE, AgentErrorType.DEADLINE_EXCEEDED),
    ],
)
def test_step_stopped_by_its_deadline_may_have_acted(effect: int, outcome: str) -> None:
    start = accepted()
    tool = Tool(name="act", side_effect=effect)
    start.run_accepted.cards.append(AgentCard(name="echo", tools=[tool]))
    state = fold("r", [start, planned(step("a", "echo"), step("b", "echo", "x", "a"))])
    assert wanted(state) == ["a"]
    wanted(state, START + LIMIT)
    results = [state.steps[name].result for name in "ab"]
    # A step that was never sent has not acted, with any tools.
    assert [r.error.type for r in results if r] == [outcome, AgentErrorType.DEADLINE_EXCEEDED]


def test_step_of_large_inputs_is_decided_on_alone() -> None:
    plan = planned(
        step("first", "echo"),
        *(step(name, "echo", "@{outputs.first.answer}", "first") for name in "ab"),
    )
    state = fold("r", [accepted(), plan])
    wanted(state)
    apply(state, finished("first", answer="x" * 70_000))
    assert [recorded(state) for _ in range(2)] == [["step_dispatched"]] * 2


def test_inputs_that_are_too_large_end_their_step_only() -> None:
    plan = planned(
        step("a", "echo"),
        step("b", "echo", "@{outputs.a.answer} " * 20),
        step("c", "echo", "@{outputs.a.answer}"),
    )
    state = fold("r", [accepted(), plan])
    wanted(state)
    apply(state, finished("a", answer="x" * 200_000))
    assert wanted(state) == ["c"]
    result = state.steps["b"].result
    assert result is not None
    assert result.error.type == AgentErrorType.RESULT_TOO_LARGE
    assert state.steps["b"].sub_task is None


def test_all_settled_wants_the_answer() -> None:
    state = fold("r", [accepted(), planned(step("a", "echo")), finished("a")])
    assert wanted(state) == [Compose]


def test_cancelled_run_ends_all_work_under_way() -> None:
    cancel = event(cancel_requested=CancelRequested(reason="enough"))
    state = fold("r", [accepted(), planned(step("a", "echo")), cancel])
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    assert record.events[-1].run_finished.response.status == RUN_STATUS_CANCELLED


@pytest.mark.requirement("D-04")
def test_step_that_asks_the_user_ends_the_run_with_its_questions() -> None:
    asks = Clarification(questions=[ClarifyingQuestion(question="Which year?", options=["2025"])])
    result = finished("a", AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION, clarification=asks)
    state = fold("r", [accepted(), planned(step("a", "echo")), result])
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    response = record.events[-1].run_finished.response
    assert response.status == RUN_STATUS_CLARIFICATION_NEEDED
    assert response.clarification.questions[0].options == ["2025"]


@pytest.mark.parametrize(("seconds", "over"), [(90, False), (92, True)])
def test_steps_end_before_run_so_that_answer_can_be_composed(seconds: int, over: bool) -> None:
    state = fold("r", [accepted(), planned(step("a", "echo"))])
    assert wanted(state) == ["a"]
    assert next_wake(state) == START + timedelta(seconds=91)
    assert wanted(state, START + timedelta(seconds=seconds)) == ([Compose] if over else ["a"])
    assert state.steps["a"].settled is over


@pytest.mark.parametrize(("seconds", "over"), [(99, False), (100, True)])
def test_run_that_is_never_planned_ends_at_its_deadline(seconds: int, over: bool) -> None:
    state = fold("r", [accepted()])
    commands = decide(state, START + timedelta(seconds=seconds))
    assert isinstance(commands[0], Record) is over
    if over:
        assert isinstance(commands[0], Record)
        assert commands[0].events[-1].run_finished.response.status == RUN_STATUS_FAILED


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
        [accepted(), planned(step("a", "echo")), finished("a"), finished("a")],
        [accepted(), planned(step("a", "echo")), finished("b")],
    ],
    ids=["no start", "two starts", "after the end", "settled twice", "unknown step"],
)
def test_log_that_contradicts_itself_is_refused(events: list[LogEvent]) -> None:
    with pytest.raises(BrokenLog):
        fold("r", events)


@pytest.mark.requirement("A-02", "A-07", "C-36")
def test_steps_beyond_turns_are_skipped_and_attempts_take_none() -> None:
    state = fold("r", [accepted(max_turns=1), planned(step("a", "echo"), step("b", "echo"))])
    assert wanted(state) == ["a"]
    sent = state.steps["a"].sub_task
    apply(state, event(step_dispatched=StepDispatched(step_id="a", sub_task=sent, attempt=2)))
    apply(state, finished("a"))
    assert wanted(state) == [Compose]
    result = state.steps["b"].result
    assert result is not None
    assert (result.status, result.error.type) == (AGENT_EXECUTION_STATUS_SKIPPED, "MaxTurnsReached")


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
