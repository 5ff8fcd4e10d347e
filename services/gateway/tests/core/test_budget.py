"""The token budget of a run, decided from the log alone."""

from typing import Any

import pytest
from gateway_harness import run_logs as logs
from gateway_harness.run_logs import START, adopted, event, settled
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_SKIPPED,
    AgentCard,
)
from bos.common.v1 import Usage
from bos.gateway.v1 import (
    RUN_STATUS_SUCCEEDED,
    OrchestratorResponse,
)
from bos.planner.v1 import MakePlanResponse, Plan
from bos.runlog.v1 import (
    AnswerStarted,
    CancelRequested,
    LogEvent,
    PlanFailed,
    RunAccepted,
    RunFinished,
    StepDispatched,
)
from bos_gateway.core import budget as budgets
from bos_gateway.core.budget import (
    MIN_STEP_TOKENS,
    counted,
    held_by_steps,
    left,
    steps_left,
)
from bos_gateway.core.decide import Command, Compose, MakePlan, Record, RunStep, decide
from bos_gateway.core.fold import add_usage, apply, fold
from bos_gateway.core.run_state import RunState
from bos_gateway.effects.plan import usable_problems
from bos_testkit.plans import step


def accepted(max_tokens: int = 0, **limits: int) -> LogEvent:
    frozen = {"max_concurrency": 4, "max_steps": 8, "max_revisions": 0, **limits}
    return logs.accepted(max_tokens=max_tokens, **frozen)


def planned(*steps: Any, tokens: int = 0, revision: int = 0) -> LogEvent:
    return logs.planned(*steps, usage=Usage(input_tokens=tokens), revision=revision)


def finished(step_id: str, tokens: int | None = 0) -> LogEvent:
    usage = (
        None
        if tokens is None
        else Usage(input_tokens=tokens // 2, output_tokens=tokens - tokens // 2)
    )
    return logs.finished(step_id, usage=usage)


def held(state: RunState) -> dict[str, int]:
    return {c.step_id: c.reserved_tokens for c in settled(state) if isinstance(c, RunStep)}


def test_without_a_budget_nothing_is_bounded() -> None:
    state = fold("r", [accepted()])
    assert decide(state, START) == [MakePlan(0, None)]
    apply(state, planned(step("a", "echo")))
    assert held(state) == {"a": 0}
    apply(state, finished("a", 10**9))
    assert settled(state) == [Compose(None)]


def test_steps_share_tokens_left_by_planning_and_composing() -> None:
    plan = planned(step("a", "echo"), step("b", "echo"), step("c", "echo", "x", "a"), tokens=1000)
    state = fold("r", [accepted(10_000), plan])
    assert held(state) == {"a": 2333, "b": 2333}
    apply(state, finished("a", 333))
    # What a did not use goes to those after it.
    assert held(state) == {"b": 2333, "c": 8000 - 1000 - 333 - 2333}


def test_step_waits_for_tokens_that_another_may_give_back() -> None:
    plan = planned(step("a", "echo"), step("b", "echo"))
    state = fold("r", [accepted(2000), plan])
    assert held(state) == {"a": 1000}
    assert not state.steps["b"].settled
    apply(state, finished("a", 600))
    assert held(state) == {"b": 1000}


@pytest.mark.parametrize(("tokens", "skipped"), [(600, False), (601, True)])
def test_step_is_skipped_once_no_tokens_can_come_back(tokens: int, skipped: bool) -> None:
    state = fold("r", [accepted(2000), planned(step("a", "echo"), step("b", "echo"))])
    settled(state)
    apply(state, finished("a", tokens))
    (command,) = settled(state)
    if not skipped:
        assert isinstance(command, RunStep)
        return
    result = state.steps["b"].result
    assert result.status == AGENT_EXECUTION_STATUS_SKIPPED
    assert result.error.type == "BudgetExhausted"
    assert "999 of the 2000 tokens" in result.error.message
    assert "BOS_GATEWAY_MAX_RUN_TOKENS" in result.error.message
    # An answer is composed all the same, from the part that was kept for it.
    assert command == Compose(max(400, (2000 - tokens) // 2))


def test_interrupted_attempt_counts_in_full() -> None:
    state = fold("r", [accepted(10_000), planned(step("a", "echo"), step("b", "echo"))])
    assert held(state) == {"a": 4000, "b": 4000}
    apply(state, finished("b", 1000))
    apply(state, adopted())
    assert counted(state.usage) == 5000
    assert held(state) == {"a": 3000}


def test_interrupted_step_waits_like_any_other() -> None:
    state = fold("r", [accepted(4000), planned(step("a", "echo"), step("b", "echo"))])
    assert held(state) == {"a": 1600, "b": 1600}
    apply(state, adopted())
    assert settled(state) == [Compose(800)]
    assert [s.status for s in state.steps.values()] == [AGENT_EXECUTION_STATUS_SKIPPED] * 2


@pytest.mark.parametrize(("usage", "counts"), [(None, 4000), (0, 0), (7, 7)])
def test_result_that_says_nothing_of_its_usage_counts_in_full(
    usage: int | None, counts: int
) -> None:
    state = fold("r", [accepted(5000), planned(step("a", "echo"))])
    settled(state)
    apply(state, finished("a", usage))
    assert counted(state.usage) == counts
    assert held_by_steps(state) == 0


def test_version_with_other_shares_counts_the_same_of_an_old_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    revised = logs.revising("a")
    lost = event(plan_failed=PlanFailed(revision=1))
    log = [accepted(10_000), adopted(), planned(step("a", "echo")), finished("a"), revised, lost]
    before = fold("r", log).usage
    for share in ("PLAN_SHARE", "COMPOSE_SHARE"):
        monkeypatch.setattr(budgets, share, 0.1)
    monkeypatch.setattr(budgets, "MIN_STEP_TOKENS", 1)
    assert fold("r", log).usage == before
    assert counted(before) == 5000
    assert decide(fold("r", [accepted(10_000)]), START) == [MakePlan(0, 1000)]


def test_planning_that_was_interrupted_counts_in_full() -> None:
    state = fold("r", [accepted(10_000), adopted()])
    assert counted(state.usage) == 2500
    assert decide(state, START) == [MakePlan(0, 2500)]
    for _ in range(3):
        apply(state, adopted())
    # The part for composing is not touched, and without tokens the heuristic plans.
    assert decide(state, START) == [MakePlan(0, 0)]
    assert left(state) == 2000


@pytest.mark.parametrize(("usage", "counts"), [(None, 2500), (Usage(), 0)])
def test_failed_planning_without_usage_counts_in_full(usage: Usage | None, counts: int) -> None:
    state = fold("r", [accepted(10_000), event(plan_failed=PlanFailed(usage=usage))])
    assert counted(state.usage) == counts


def test_interrupted_composing_counts_in_full_and_is_repeated() -> None:
    state = fold("r", [accepted(10_000), planned(tokens=1000)])
    assert settled(state) == [Compose(4500)]
    apply(state, event(answer_started=AnswerStarted(attempt=1, reserved_tokens=4500)))
    apply(state, adopted())
    assert settled(state) == [Compose(2250)]


def test_steps_of_all_revisions_count_against_their_limit() -> None:
    state = fold("r", [accepted(max_steps=3), planned(step("a", "echo"), step("b", "echo"))])
    assert steps_left(state) == 3
    settled(state)
    assert steps_left(state) == 1
    start = RunAccepted(cards=[AgentCard(name="echo")])
    for count, fits in ((1, True), (2, False)):
        plan = Plan(steps=[step(f"new_{n}", "echo") for n in range(count)])
        assert (not usable_problems(MakePlanResponse(plan=plan), start, steps_left(state))) is fits
    for name in "ab":
        apply(state, finished(name))
    apply(state, logs.revising("b"))
    apply(state, planned(step("c", "echo"), revision=1))
    settled(state)
    assert steps_left(state) == 0


@pytest.mark.parametrize(("tokens", "left_over"), [(8000, 2000), (12_000, 0)])
def test_composing_keeps_its_share_of_what_steps_left(tokens: int, left_over: int) -> None:
    plan = planned(step("a", "echo"), step("b", "echo", "x", "a"))
    state = fold("r", [accepted(10_000), plan])
    settled(state)
    apply(state, finished("a", tokens))
    assert settled(state) == [Compose(left_over)]
    assert state.steps["b"].status == AGENT_EXECUTION_STATUS_SKIPPED


def test_what_a_plan_holds_when_it_is_replaced_counts_in_full() -> None:
    state = fold("r", [accepted(5000), planned(step("a", "echo"))])
    settled(state)
    apply(state, logs.revising())
    apply(state, planned(step("b", "echo"), revision=1))
    assert (counted(state.usage), held_by_steps(state)) == (4000, 0)


_SHAPES = [
    [step("a", "echo"), step("b", "echo", "x", "a"), step("c", "echo", "x", "b")],
    [step(n, "echo") for n in "abcde"],
    [step("a", "echo"), step("b", "echo"), step("c", "echo", "x", "a", "b")],
    [],
]


@given(
    shape=st.sampled_from(_SHAPES),
    budget=st.sampled_from([1, 900, 1250, 4000, 10_000, 1_000_000]),
    data=st.data(),
)
def test_counted_and_held_tokens_never_exceed_the_budget(
    shape: list[Any], budget: int, data: DataObject
) -> None:
    """Results come in any order, cost anything up to what was held, and owners change."""
    events = [accepted(budget)]
    adoptions = 0
    for _ in range(200):
        state = fold("r", events)
        assert counted(state.usage) + held_by_steps(state) + state.answer_tokens <= budget
        if state.finished:
            break
        commands = decide(state, START)
        assert commands, "an unfinished run always wants something"
        if adoptions < 4 and data.draw(st.integers(0, 5), label="owner dies") == 0:
            adoptions += 1
            events.append(adopted())
        else:
            events += _happens(data.draw(st.sampled_from(commands)), state, shape, data)
    assert fold("r", events).finished
    settled_ids = [e.step_finished.step_id for e in events if e.HasField("step_finished")]
    assert sorted(settled_ids) == sorted(s.step_id for s in shape)


def _happens(
    command: Command, state: RunState, shape: list[Any], data: DataObject
) -> list[LogEvent]:
    match command:
        case MakePlan(token_budget=budget):
            return [planned(*shape, tokens=data.draw(st.integers(0, budget)))]
        case Record(events=recorded):
            return list(recorded)
        case RunStep(step_id=step_id, reserved_tokens=reserved):
            assert reserved >= MIN_STEP_TOKENS
            if data.draw(st.booleans(), label="another attempt"):
                again = StepDispatched(
                    step_id=step_id,
                    sub_task=command.sub_task,
                    attempt=command.attempt + 1,
                    reserved_tokens=reserved,
                )
                return [event(step_dispatched=again), finished(step_id, reserved)]
            return [finished(step_id, data.draw(st.none() | st.integers(0, reserved)))]
        case Compose(token_budget=budget):
            started = AnswerStarted(attempt=state.answer_attempt + 1, reserved_tokens=budget or 0)
            if state.answer_attempt < 3 and data.draw(st.booleans(), label="composing dies"):
                return [event(answer_started=started), adopted()]
            end = RunFinished(response=OrchestratorResponse(status=RUN_STATUS_SUCCEEDED))
            return [event(answer_started=started), event(run_finished=end)]


@pytest.mark.parametrize(
    ("events", "counted_tokens"),
    [
        ([], 2500),  # a quarter, for planning
        ([planned(step("a", "echo"), tokens=1000)], 1000),
        ([planned(step("a", "echo"), tokens=1000), finished("a", 3000)], 4000),
        (
            [
                planned(step("a", "echo"), tokens=1000),
                finished("a", 3000),
                event(answer_started=AnswerStarted(attempt=1, reserved_tokens=2000)),
            ],
            6000,
        ),
    ],
    ids=["planning", "nothing under way", "steps done", "composing"],
)
def test_run_that_is_cancelled_counts_what_was_under_way(
    events: list[LogEvent], counted_tokens: int
) -> None:
    state = fold("r", [accepted(10_000), *events, event(cancel_requested=CancelRequested())])
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    usage = record.events[-1].run_finished.response.metadata.usage
    assert counted(usage) == counted_tokens


def test_sums_of_usage_saturate_and_never_shrink() -> None:
    total = Usage(input_tokens=5, model_calls=2**31 - 2)
    for _ in range(3):
        add_usage(total, Usage(input_tokens=-9, output_tokens=2**62, model_calls=2**31 - 1))
    assert (total.input_tokens, total.output_tokens) == (5, 2**53 - 1)
    assert total.model_calls == 2**31 - 1


def test_usage_adds_up_with_cached_tokens_and_calls_given_up() -> None:
    total = Usage(input_tokens=100, cached_input_tokens=60, abandoned_calls=1, models=["a"])
    more = Usage(model_calls=2, input_tokens=50, cached_input_tokens=5, abandoned_calls=2)
    more.models.append("a")
    add_usage(total, more)
    assert (total.model_calls, total.input_tokens) == (2, 150)
    assert (total.cached_input_tokens, total.abandoned_calls) == (65, 3)
    assert list(total.models) == ["a"]
