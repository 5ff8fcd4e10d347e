"""When a run gets another plan, and when it does not."""

from datetime import timedelta
from typing import Any

import pytest
from gateway_harness.run_logs import (
    CANCEL,
    COMPOSES,
    FAILED,
    IRREVERSIBLE,
    MAKES_ANOTHER_PLAN,
    SKIPPED,
    START,
    accepted,
    acting,
    adopted,
    after,
    event,
    failed,
    finished,
    mended,
    planned,
    then,
    tried,
    wanted,
)

from bos.agent.v1 import SIDE_EFFECT_CLASS_IDEMPOTENT, SIDE_EFFECT_CLASS_NONE, AgentCard
from bos.common.v1 import AgentError, Row, Table, Usage
from bos.planner.v1 import PlannerDecision
from bos.runlog.v1 import AnswerStarted, LogEvent, PlanFailed
from bos_chassis.values import to_value_map
from bos_gateway.core.decide import MakePlan, next_wake
from bos_gateway.core.fold import apply, fold
from bos_gateway.core.revision_context import definitive_failure, revision_context
from bos_gateway.core.run_state import RunState
from bos_testkit.plans import step

ONE = planned(step("a", "echo"))
DENIED = finished("a", SKIPPED, error="denied_by_user")
NOTHING = event(
    plan_failed=PlanFailed(revision=1, error=AgentError(type="NoNewPlan", message="No."))
)


def costly(tokens: int) -> LogEvent:
    made = failed("a")
    made.step_finished.result.usage.input_tokens = tokens
    return made


@pytest.mark.requirement("C-21")
def test_steps_that_failed_lead_to_another_plan_once_all_have_ended() -> None:
    assert tried(finished("a"), finished("b")) == COMPOSES
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
    assert then(state, DENIED, failed("b")) == MAKES_ANOTHER_PLAN
    context = revision_context(state)
    assert [each.step_id for each in context.failed_steps] == ["b"]
    assert [each.step_id for each in context.blocked_steps] == ["a"]
    assert [each.step_id for each in context.execution_context] == ["b"]


REFERS = planned(step("a", "echo"), step("b", "echo", "use @{outputs.a.nowhere}"))
ACTS = planned(step("a", "actor"))


def using(tool: str) -> LogEvent:
    """A plan whose step uses this tool of an agent that has others."""
    made = planned(step("a", "actor"))
    made.planned.plan.steps[0].tools.append(tool)
    return made


def irreversible_or_harmless() -> AgentCard:
    card = acting(IRREVERSIBLE)
    card.tools.add(name="look", side_effect=SIDE_EFFECT_CLASS_NONE)
    return card


@pytest.mark.requirement("C-17")
@pytest.mark.parametrize(
    ("plan", "card", "outcome", "follows"),
    [
        # A reference is as mendable as what it refers to.
        (REFERS, None, finished("a"), MAKES_ANOTHER_PLAN),
        (REFERS, None, failed("a"), MAKES_ANOTHER_PLAN),
        (REFERS, None, failed("a", "SandboxViolation"), COMPOSES),
        (REFERS, None, DENIED, COMPOSES),
        # Another plan has other keys, so not even an idempotent effect would be recognised.
        (ACTS, acting(SIDE_EFFECT_CLASS_NONE), failed("a"), MAKES_ANOTHER_PLAN),
        (ACTS, acting(SIDE_EFFECT_CLASS_IDEMPOTENT), failed("a"), COMPOSES),
        (ACTS, acting(IRREVERSIBLE), failed("a"), COMPOSES),
        (ACTS, acting(IRREVERSIBLE, protected=True), failed("a"), MAKES_ANOTHER_PLAN),
        # What never began has not acted, and only the tools of the plan can have acted.
        (ACTS, acting(IRREVERSIBLE), failed("a", "AgentUnknown"), MAKES_ANOTHER_PLAN),
        (using("look"), irreversible_or_harmless(), failed("a"), MAKES_ANOTHER_PLAN),
        (using("act"), irreversible_or_harmless(), failed("a"), COMPOSES),
        # The planner says that it has no other plan.
        (planned(step("a", "echo"), only_plan=True), None, failed("a"), COMPOSES),
    ],
)
def test_step_is_planned_again_if_that_could_mend_it_and_doubles_nothing(
    plan: LogEvent, card: AgentCard | None, outcome: LogEvent, follows: list[object]
) -> None:
    state = after(plan, start=accepted(*([card] if card else [])))
    assert then(state, outcome) == follows


# Limits


def test_plan_is_revised_as_often_as_the_run_was_accepted_with() -> None:
    assert tried(failed("a"), steps="a", start=accepted(max_revisions=0)) == COMPOSES
    assert tried(failed("a"), steps="a", start=accepted(max_revisions=1)) == MAKES_ANOTHER_PLAN
    state = mended(accepted(max_revisions=1))
    assert then(state, finished("c", FAILED, revision=1)) == COMPOSES
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
    found = tried(costly(1_000), steps="a", start=start)
    assert [type(each) for each in found] == [type(each) for each in follows]
    if isinstance(follows[0], MakePlan):
        assert [each.revision for each in found if isinstance(each, MakePlan)] == [1]


@pytest.mark.parametrize(
    ("deadline_s", "at_s", "follows"),
    [
        (100, 84, MAKES_ANOTHER_PLAN),
        (100, 86, COMPOSES),
        (10, 6.5, MAKES_ANOTHER_PLAN),
        (10, 7.5, COMPOSES),
    ],
)
def test_another_plan_needs_time_for_itself_and_a_step(
    deadline_s: int, at_s: float, follows: list[object]
) -> None:
    start = accepted()
    start.run_accepted.deadline.FromDatetime(START + timedelta(seconds=deadline_s))
    now = START + timedelta(seconds=at_s)
    assert then(after(ONE, start=start), failed("a"), now=now) == follows


def test_planning_timeout_ends_revisions_and_composes_an_answer() -> None:
    state = after(ONE)
    assert then(state, failed("a")) == MAKES_ANOTHER_PLAN
    assert next_wake(state) == START + timedelta(seconds=91)
    assert wanted(state, START + timedelta(seconds=91)) == COMPOSES
    assert state.revision_failure.type == "DeadlineExceeded"


def test_answer_that_was_begun_is_composed_by_any_owner() -> None:
    """Such as a replica of an earlier version, which knows no revisions."""
    begun = event(answer_started=AnswerStarted(attempt=1))
    assert tried(failed("a"), begun, adopted(), steps="a") == COMPOSES


@pytest.mark.parametrize("how", ["plan_failed", "no steps"])
@pytest.mark.requirement("C-22")
def test_without_a_new_plan_nothing_more_is_attempted(how: str) -> None:
    state = after(ONE)
    then(state, failed("a"))
    nothing = NOTHING if how == "plan_failed" else planned(revision=1)
    assert then(state, nothing) == COMPOSES
    assert list(state.steps) == ["a"]
    assert (state.revision, state.replanning) == (0, None)
    assert definitive_failure(state).startswith("No other plan was found.")


def test_new_owner_repeats_the_revision_and_counts_lost_planning() -> None:
    start = accepted(max_tokens=100_000)
    state = after(ONE, start=start)
    (before,) = then(state, costly(1_000))
    used = state.usage.unreported_tokens
    (again,) = then(state, adopted())
    assert isinstance(before, MakePlan)
    assert isinstance(again, MakePlan)
    assert (again.revision, before.revision) == (1, 1)
    assert state.usage.unreported_tokens - used == before.token_budget


def test_another_plan_leaves_tokens_for_a_step_of_it() -> None:
    state = after(ONE, start=accepted(max_tokens=20_000))
    (command,) = then(state, costly(13_000))
    assert isinstance(command, MakePlan)
    # Of the 7000 that are left 4000 are kept for composing.
    assert command.token_budget == 2_000


def test_cancelled_while_it_is_replanned() -> None:
    state = after(ONE, start=accepted(max_tokens=100_000))
    (command,) = then(state, costly(1_000))
    assert isinstance(command, MakePlan)
    assert then(state, CANCEL) == []
    assert state.response.metadata.usage.unreported_tokens == command.token_budget


def test_planning_that_failed_is_over_also_for_the_next_owner() -> None:
    state = fold("r", [accepted(max_tokens=100_000)])
    error = AgentError(type="Unavailable", message="The question could not be planned.")
    apply(state, event(plan_failed=PlanFailed(error=error, usage=Usage(input_tokens=10))))
    apply(state, adopted())
    assert state.planning is None
    assert state.usage == Usage(input_tokens=10, duration={})


# Uncertain plans


def uncertain(confidence: float, result: dict[str, Any], origin: str = "model") -> RunState:
    decision = PlannerDecision(confidence=confidence)
    state = after(planned(step("a", "echo"), decision=decision, origin=origin))
    apply(state, finished("a", **result))
    return state


THIN: dict[str, Any] = {"answer": ""}


@pytest.mark.requirement("B-22")
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
)
def test_thin_results_of_an_uncertain_plan_lead_to_a_revision(
    confidence: float, result: dict[str, Any], origin: str, follows: list[object]
) -> None:
    assert wanted(uncertain(confidence, result, origin)) == follows


@pytest.mark.requirement("B-22")
def test_planner_is_asked_about_thin_results_once_in_a_run() -> None:
    state = uncertain(0.4, THIN)
    assert wanted(state) == MAKES_ANOTHER_PLAN
    then(state, planned(step("b", "echo"), revision=1, decision=PlannerDecision(confidence=0.1)))
    assert then(state, finished("b", revision=1, **THIN)) == COMPOSES


# Side effects


def held(
    on: str = "a", card: AgentCard | None = None, tools: tuple[str, ...] = ("act",)
) -> RunState:
    """A step that acts, behind one that failed."""
    acts = step("act", "actor", "act", on)
    acts.tools.extend(tools)
    card = card or acting(IRREVERSIBLE, protected=True)
    plan = planned(step("a", "echo"), step("between", "echo", "x", "a"), acts)
    return after(plan, start=accepted(card))


@pytest.mark.parametrize("on", ["a", "between"])
def test_side_effect_behind_a_failure_waits_for_another_plan(on: str) -> None:
    state = held(on)
    assert then(state, failed("a")) == ["between"]
    assert then(state, finished("between")) == MAKES_ANOTHER_PLAN
    context = revision_context(state)
    assert [each.step_id for each in context.failed_plan.steps] == ["a", "between", "act"]
    assert [each.step_id for each in context.execution_context] == ["a", "between"]
    assert then(state, planned(step("again", "echo"), revision=1)) == ["again"]
    assert "act" not in state.steps


def test_side_effect_proceeds_if_there_is_no_other_plan() -> None:
    state = held()
    then(state, failed("a"), finished("between"))
    assert then(state, NOTHING) == ["act"]


@pytest.mark.parametrize(
    ("card", "tools", "outcome", "waits"),
    [
        (None, ("act",), DENIED, False),
        (acting(SIDE_EFFECT_CLASS_NONE), ("act",), failed("a"), False),
        (acting(SIDE_EFFECT_CLASS_NONE, protected=True), ("act",), failed("a"), True),
        # A tool that needs approval can be used only if the plan names it.
        (acting(IRREVERSIBLE, protected=True), (), failed("a"), False),
    ],
    ids=["behind a denial", "harmless", "needs an approval", "not named"],
)
def test_step_behind_a_failure_waits_only_if_it_may_act(
    card: AgentCard | None, tools: tuple[str, ...], outcome: LogEvent, waits: bool
) -> None:
    state = held(card=card, tools=tools)
    assert then(state, outcome) == (["between"] if waits else ["between", "act"])
