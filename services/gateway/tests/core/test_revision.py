"""When a run gets another plan, and when it does not."""

from datetime import timedelta
from typing import Any

import pytest
from gateway_harness.revised_logs import (
    COMPOSES,
    FAILED,
    MAKES_ANOTHER_PLAN,
    SKIPPED,
    START,
    accepted,
    acting,
    after,
    event,
    failed,
    finished,
    mended,
    planned,
    tried,
    wanted,
)

from bos.agent.v1 import (
    SIDE_EFFECT_CLASS_IDEMPOTENT,
    SIDE_EFFECT_CLASS_IRREVERSIBLE,
    SIDE_EFFECT_CLASS_NONE,
    AgentCard,
)
from bos.common.v1 import AgentError, Row, Table, Usage
from bos.planner.v1 import PlannerDecision
from bos.runlog.v1 import (
    AnswerStarted,
    CancelRequested,
    LogEvent,
    PlanFailed,
    RunAdopted,
)
from bos_chassis.values import to_value_map
from bos_gateway.core.decide import MakePlan, next_wake
from bos_gateway.core.fold import apply, fold
from bos_gateway.core.revision_context import definitive_failure, revision_context
from bos_gateway.core.run_state import RunState
from bos_testkit.plans import step

# When there is another plan


@pytest.mark.requirement("C-21")
def test_steps_that_failed_lead_to_another_plan() -> None:
    assert tried(finished("a"), failed("b")) == MAKES_ANOTHER_PLAN
    assert tried(finished("a"), finished("b")) == COMPOSES


def test_another_plan_waits_until_every_step_has_ended() -> None:
    assert tried(failed("a")) == ["b"]
    assert tried(failed("a"), finished("b")) == MAKES_ANOTHER_PLAN


@pytest.mark.requirement("C-23")
def test_error_types_that_another_plan_could_mend_and_others() -> None:
    for error in (
        *("HttpError", "QueryError", "Unavailable", "DeadlineExceeded", "PlanningDeclined"),
        *("ConfigurationError", "ProgramFailed", "AgentProtocolError", "AgentUnknown", "KeyError"),
    ):
        assert tried(failed("a", error), steps="a") == MAKES_ANOTHER_PLAN, error
    for error in (
        *("SandboxViolation", "PermissionDenied", "HttpRefused", "ModelRefused"),
        *("ClarificationLimit", "BudgetExhausted", "CredentialLost", "OutcomeUnknown", "Cancelled"),
    ):
        assert tried(failed("a", error), steps="a") == COMPOSES, error
    for error in ("ModelUnavailable", "ModelRateLimited", "ModelNotConfigured"):
        assert tried(failed("a", error), steps="a") == COMPOSES, error
        assert tried(failed("a", error), failed("b"), steps="ab") == MAKES_ANOTHER_PLAN, error
    for error in ("hitl_skipped_non_streaming", "denied_by_user", "hitl_timeout"):
        assert tried(finished("a", SKIPPED, error=error), steps="a") == COMPOSES, error


def test_reason_in_the_details_of_an_error_counts() -> None:
    def follows(**details: Any) -> list[object]:
        return tried(failed("a", "QueryError", **details), steps="a")

    assert follows(violations=[{"rule": "FORBIDDEN_KEYWORD"}]) == COMPOSES
    assert follows(violations=[]) == MAKES_ANOTHER_PLAN
    for reason in ("MODEL_REFUSED", "MODEL_UNAVAILABLE", "MODEL_TIMEOUT", "MODEL_CIRCUIT_OPEN"):
        assert follows(reason=reason) == COMPOSES, reason
    for reason in ("STEP_TIMEOUT", "MODEL_OUTPUT_INVALID"):
        assert follows(reason=reason) == MAKES_ANOTHER_PLAN, reason


def test_failed_step_is_replanned_beside_a_denied_one() -> None:
    state = after(planned(step("a", "echo"), step("b", "echo")))
    apply(state, finished("a", SKIPPED, error="denied_by_user"))
    apply(state, failed("b"))
    assert wanted(state) == MAKES_ANOTHER_PLAN
    context = revision_context(state)
    assert [each.step_id for each in context.failed_steps] == ["b"]
    assert [each.step_id for each in context.blocked_steps] == ["a"]
    assert [each.step_id for each in context.execution_context] == ["b"]


REFERS = "use @{outputs.a.nowhere}"


@pytest.mark.parametrize(
    ("source", "follows"),
    [
        (finished("a"), MAKES_ANOTHER_PLAN),
        (failed("a"), MAKES_ANOTHER_PLAN),
        (failed("a", "SandboxViolation"), COMPOSES),
        (finished("a", SKIPPED, error="denied_by_user"), COMPOSES),
    ],
    ids=["no such field", "its source failed", "its source was blocked", "its source was denied"],
)
@pytest.mark.requirement("C-17")
def test_reference_is_as_mendable_as_what_it_refers_to(
    source: LogEvent, follows: list[object]
) -> None:
    state = after(planned(step("a", "echo"), step("b", "echo", REFERS)))
    apply(state, source)
    assert wanted(state) == follows


@pytest.mark.parametrize(
    ("card", "follows"),
    [
        (acting(SIDE_EFFECT_CLASS_NONE), MAKES_ANOTHER_PLAN),
        (acting(SIDE_EFFECT_CLASS_IDEMPOTENT), COMPOSES),
        (acting(SIDE_EFFECT_CLASS_IRREVERSIBLE), COMPOSES),
        (acting(SIDE_EFFECT_CLASS_IRREVERSIBLE, protected=True), MAKES_ANOTHER_PLAN),
    ],
    ids=["harmless", "known by its key", "irreversible", "only with approval"],
)
def test_step_that_may_have_acted_is_not_planned_again(
    card: AgentCard, follows: list[object]
) -> None:
    """Another plan has other keys, so not even an idempotent effect would be recognised."""
    state = after(planned(step("a", "actor")), start=accepted(card))
    apply(state, failed("a"))
    assert wanted(state) == follows


# Limits


def test_plan_is_revised_as_often_as_the_run_was_accepted_with() -> None:
    assert tried(failed("a"), steps="a", start=accepted(max_revisions=0)) == COMPOSES
    assert tried(failed("a"), steps="a", start=accepted(max_revisions=1)) == MAKES_ANOTHER_PLAN
    state = mended(accepted(max_revisions=1))
    apply(state, finished("c", FAILED, revision=1))
    assert wanted(state) == COMPOSES
    assert definitive_failure(state).startswith("The plan was revised once, which is the limit")


@pytest.mark.requirement("C-36")
@pytest.mark.parametrize(
    ("start", "follows"),
    [
        (accepted(max_steps=2), MAKES_ANOTHER_PLAN),
        (accepted(max_steps=1), COMPOSES),
        (accepted(request={"max_turns": 2}), MAKES_ANOTHER_PLAN),
        (accepted(request={"max_turns": 1}), COMPOSES),
        (accepted(max_tokens=1_000_000), [MakePlan(1, 250_000)]),
        (accepted(max_tokens=3_000), COMPOSES),
    ],
    ids=["steps", "no steps", "turns", "no turns", "tokens", "no tokens"],
)
def test_another_plan_needs_steps_turns_and_tokens(start: LogEvent, follows: list[object]) -> None:
    outcome = failed("a")
    outcome.step_finished.result.usage.input_tokens = 1_000
    found = tried(outcome, steps="a", start=start)
    assert [type(each) for each in found] == [type(each) for each in follows]
    if isinstance(follows[0], MakePlan):
        assert [each.revision for each in found if isinstance(each, MakePlan)] == [1]


@pytest.mark.parametrize(("seconds", "late"), [(84, False), (86, True)])
def test_another_plan_needs_time_for_itself_and_a_step(seconds: int, late: bool) -> None:
    state = after(planned(step("a", "echo")))
    apply(state, failed("a"))
    now = START + timedelta(seconds=seconds)
    assert wanted(state, now) == (COMPOSES if late else MAKES_ANOTHER_PLAN)


def test_planner_that_has_no_other_plan_is_not_asked() -> None:
    state = after(planned(step("a", "echo"), only_plan=True))
    apply(state, failed("a"))
    assert wanted(state) == COMPOSES


def test_planning_timeout_ends_revisions_and_composes_an_answer() -> None:
    state = after(planned(step("a", "echo")))
    apply(state, failed("a"))
    assert wanted(state) == MAKES_ANOTHER_PLAN
    assert next_wake(state) == START + timedelta(seconds=91)
    assert wanted(state, START + timedelta(seconds=91)) == COMPOSES
    assert state.revision_failure is not None
    assert state.revision_failure.type == "DeadlineExceeded"


@pytest.mark.parametrize(("left_s", "follows"), [(1.5, MAKES_ANOTHER_PLAN), (0.5, COMPOSES)])
def test_short_run_needs_less_time_for_another_plan(left_s: float, follows: list[object]) -> None:
    start = accepted()
    start.run_accepted.deadline.FromDatetime(START + timedelta(seconds=10))
    state = after(planned(step("a", "echo")), start=start)
    apply(state, failed("a"))
    assert wanted(state, START + timedelta(seconds=8 - left_s)) == follows


def test_answer_that_was_begun_is_composed_by_any_owner() -> None:
    """Such as a replica of an earlier version, which knows no revisions."""
    state = after(planned(step("a", "echo")))
    apply(state, failed("a"))
    apply(state, event(answer_started=AnswerStarted(attempt=1)))
    apply(state, event(run_adopted=RunAdopted(reason="lease_expired")))
    assert wanted(state) == COMPOSES


@pytest.mark.parametrize(("tool", "follows"), [("look", MAKES_ANOTHER_PLAN), ("act", COMPOSES)])
def test_only_the_tools_of_the_plan_can_have_acted(tool: str, follows: list[object]) -> None:
    card = acting(SIDE_EFFECT_CLASS_IRREVERSIBLE)
    card.tools.add(name="look", side_effect=SIDE_EFFECT_CLASS_NONE)
    using = step("a", "actor")
    using.tools.append(tool)
    state = after(planned(using), start=accepted(card))
    apply(state, failed("a"))
    assert wanted(state) == follows


def test_unstarted_step_may_be_replanned_despite_side_effects() -> None:
    state = after(
        planned(step("a", "actor")), start=accepted(acting(SIDE_EFFECT_CLASS_IRREVERSIBLE))
    )
    apply(state, failed("a", "AgentUnknown"))
    assert wanted(state) == MAKES_ANOTHER_PLAN


@pytest.mark.parametrize("how", ["plan_failed", "no steps"])
@pytest.mark.requirement("C-22")
def test_without_a_new_plan_nothing_more_is_attempted(how: str) -> None:
    state = after(planned(step("a", "echo")))
    apply(state, failed("a"))
    wanted(state)
    error = AgentError(type="NoNewPlan", message="There is no other plan.")
    nothing = event(plan_failed=PlanFailed(revision=1, error=error))
    apply(state, nothing if how == "plan_failed" else planned(revision=1))
    assert wanted(state) == COMPOSES
    assert list(state.steps) == ["a"]
    assert (state.revision, state.replanning) == (0, None)
    assert definitive_failure(state).startswith("No other plan was found.")


def test_new_owner_repeats_the_revision_and_counts_lost_planning() -> None:
    start = accepted(max_tokens=100_000)
    state = after(planned(step("a", "echo")), start=start)
    outcome = failed("a")
    outcome.step_finished.result.usage.input_tokens = 1_000
    apply(state, outcome)
    (before,) = wanted(state)
    used = state.usage.unreported_tokens
    apply(state, event(run_adopted=RunAdopted(reason="lease_expired")))
    (again,) = wanted(state)
    assert isinstance(before, MakePlan)
    assert isinstance(again, MakePlan)
    assert (again.revision, before.revision) == (1, 1)
    assert state.usage.unreported_tokens - used == before.token_budget


def test_another_plan_leaves_tokens_for_a_step_of_it() -> None:
    state = after(planned(step("a", "echo")), start=accepted(max_tokens=20_000))
    outcome = failed("a")
    outcome.step_finished.result.usage.input_tokens = 13_000
    apply(state, outcome)
    (command,) = wanted(state)
    assert isinstance(command, MakePlan)
    # Of the 7000 that are left 4000 are kept for composing.
    assert command.token_budget == 2_000


def test_cancelled_while_it_is_replanned() -> None:
    state = after(planned(step("a", "echo")), start=accepted(max_tokens=100_000))
    outcome = failed("a")
    outcome.step_finished.result.usage.input_tokens = 1_000
    apply(state, outcome)
    (command,) = wanted(state)
    assert isinstance(command, MakePlan)
    apply(state, event(cancel_requested=CancelRequested(reason="enough")))
    assert wanted(state) == []
    assert state.response is not None
    assert state.response.metadata.usage.unreported_tokens == command.token_budget


def test_planning_that_failed_is_over_also_for_the_next_owner() -> None:
    state = fold("r", [accepted(max_tokens=100_000)])
    error = AgentError(type="Unavailable", message="The question could not be planned.")
    apply(state, event(plan_failed=PlanFailed(error=error, usage=Usage(input_tokens=10))))
    apply(state, event(run_adopted=RunAdopted(reason="lease_expired")))
    assert state.planning is None
    assert state.usage == Usage(input_tokens=10, duration={})


# Uncertain plans


def uncertain(confidence: float, result: dict[str, Any], origin: str = "model") -> RunState:
    decision = PlannerDecision(confidence=confidence)
    state = after(planned(step("a", "echo"), decision=decision, origin=origin))
    apply(state, finished("a", **result))
    return state


THIN: dict[str, Any] = {"answer": ""}


@pytest.mark.parametrize(
    ("confidence", "result", "origin", "follows"),
    [
        (0.4, THIN, "model", MAKES_ANOTHER_PLAN),
        (0.5, THIN, "model", COMPOSES),
        (0.4, THIN, "heuristic", COMPOSES),
        (0.4, {"answer": "7"}, "model", COMPOSES),
        (0.4, {"partial_data": to_value_map({"x": 1})}, "model", MAKES_ANOTHER_PLAN),
        (0.4, {"answer": "Nothing.", "table": Table()}, "model", MAKES_ANOTHER_PLAN),
        (0.4, {"answer": "", "table": Table(rows=[Row()])}, "model", COMPOSES),
    ],
    ids=["thin", "certain", "no model", "results are there", "partial", "no rows", "rows"],
)
@pytest.mark.requirement("B-22")
def test_thin_results_of_an_uncertain_plan_lead_to_a_revision(
    confidence: float, result: dict[str, Any], origin: str, follows: list[object]
) -> None:
    assert wanted(uncertain(confidence, result, origin)) == follows


@pytest.mark.requirement("B-22")
def test_planner_is_asked_about_thin_results_once_in_a_run() -> None:
    state = uncertain(0.4, THIN)
    assert wanted(state) == MAKES_ANOTHER_PLAN
    apply(state, planned(step("b", "echo"), revision=1, decision=PlannerDecision(confidence=0.1)))
    wanted(state)
    apply(state, finished("b", revision=1, **THIN))
    assert wanted(state) == COMPOSES


# Side effects


def held(
    on: str = "a", card: AgentCard | None = None, tools: tuple[str, ...] = ("act",)
) -> RunState:
    """A step that acts, behind one that failed."""
    acts = step("act", "actor", "act", on)
    acts.tools.extend(tools)
    card = card or acting(SIDE_EFFECT_CLASS_IRREVERSIBLE, protected=True)
    plan = planned(step("a", "echo"), step("between", "echo", "x", "a"), acts)
    return after(plan, start=accepted(card))


@pytest.mark.parametrize("on", ["a", "between"])
def test_side_effect_behind_a_failure_waits_for_another_plan(on: str) -> None:
    state = held(on)
    apply(state, failed("a"))
    assert wanted(state) == ["between"]
    apply(state, finished("between"))
    assert wanted(state) == MAKES_ANOTHER_PLAN
    context = revision_context(state)
    assert [each.step_id for each in context.failed_plan.steps] == ["a", "between", "act"]
    assert [each.step_id for each in context.execution_context] == ["a", "between"]
    apply(state, planned(step("again", "echo"), revision=1))
    assert wanted(state) == ["again"]
    assert "act" not in state.steps


def test_side_effect_proceeds_if_there_is_no_other_plan() -> None:
    state = held()
    apply(state, failed("a"))
    apply(state, finished("between"))
    wanted(state)
    error = AgentError(type="NoNewPlan", message="There is no other plan.")
    apply(state, event(plan_failed=PlanFailed(revision=1, error=error)))
    assert wanted(state) == ["act"]


def test_side_effect_behind_a_denial_does_not_wait() -> None:
    state = held()
    apply(state, finished("a", SKIPPED, error="denied_by_user"))
    assert wanted(state) == ["between", "act"]


def test_step_that_needs_an_approval_waits_for_the_revision() -> None:
    state = held(card=acting(SIDE_EFFECT_CLASS_NONE, protected=True))
    apply(state, failed("a"))
    assert wanted(state) == ["between"]


@pytest.mark.parametrize(
    ("card", "tools"),
    [
        (acting(SIDE_EFFECT_CLASS_NONE), ("act",)),
        (acting(SIDE_EFFECT_CLASS_IRREVERSIBLE, protected=True), ()),
    ],
    ids=["harmless", "not named"],
)
def test_step_without_side_effects_does_not_wait(card: AgentCard, tools: tuple[str, ...]) -> None:
    """A tool that needs approval can be used only if the plan names it."""
    state = held(card=card, tools=tools)
    apply(state, failed("a"))
    assert wanted(state) == ["between", "act"]
