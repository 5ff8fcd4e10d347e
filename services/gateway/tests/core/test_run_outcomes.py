"""Steps that did not fail and have no result: what follows for their run."""

import pytest
from gateway_harness.run_logs import (
    COMPOSES,
    FAILED,
    SKIPPED,
    START,
    after,
    asking,
    decided,
    finished,
    planned,
    then,
)

from bos.common.v1 import Outcome
from bos.composer.v1 import ComposerOutput
from bos.gateway.v1 import (
    APPROVAL_STATUS_DENIED,
    APPROVAL_STATUS_TIMED_OUT,
    OrchestratorResponse,
    RunStatus,
)
from bos.planner.v1 import PlannerDecision
from bos.runlog.v1 import LogEvent
from bos_gateway.core.response import composed_response
from bos_gateway.core.run_state import RunState
from bos_testkit.plans import step

NOT_THERE = finished("a", outcome=Outcome.OUTCOME_NOT_IN_SOURCE, answer="The data hold no weather.")
DENIED = finished("a", SKIPPED, error="denied_by_user")
EXPIRED = finished("a", SKIPPED, error="hitl_timeout")
SKIPS = finished("a", SKIPPED, error="BudgetExhausted")
ENDS = (
    # how step a ends, how step b ends: status and outcome of the run
    (finished("a"), finished("b"), "SUCCEEDED", "ANSWERED"),
    (NOT_THERE, NOT_THERE, "SUCCEEDED", "NOT_IN_SOURCE"),
    (NOT_THERE, finished("b"), "SUCCEEDED", "PARTLY"),
    (DENIED, DENIED, "PARTIALLY_SUCCEEDED", "DENIED"),
    (EXPIRED, EXPIRED, "PARTIALLY_SUCCEEDED", "EXPIRED"),
    (SKIPS, SKIPS, "PARTIALLY_SUCCEEDED", "SKIPPED"),
    (DENIED, finished("b"), "PARTIALLY_SUCCEEDED", "PARTLY"),
    (DENIED, finished("b", FAILED), "FAILED", "UNSPECIFIED"),
    (finished("a"), finished("b", FAILED), "PARTIALLY_SUCCEEDED", "PARTLY"),
    (finished("a", FAILED), finished("b", FAILED), "FAILED", "UNSPECIFIED"),
)
UNCOMPOSED = (
    # the same, where the composer is away
    (finished("a"), finished("b"), "PARTIALLY_SUCCEEDED", "ANSWERED"),
    (DENIED, DENIED, "PARTIALLY_SUCCEEDED", "DENIED"),
    (SKIPS, EXPIRED, "PARTIALLY_SUCCEEDED", "EXPIRED"),
    (DENIED, finished("b", FAILED), "FAILED", "UNSPECIFIED"),
)


def ended(state: RunState, *, cut_off: bool = False, problem: str = "") -> OrchestratorResponse:
    output = ComposerOutput(answer="Well.", cut_off=cut_off)
    return composed_response(state, START, output, problem=problem)


def of(step_id: str, end: LogEvent) -> LogEvent:
    made = LogEvent()
    made.CopyFrom(end)
    made.step_finished.step_id = step_id
    return made


@pytest.mark.requirement("Q-08", "Q-09")
def test_run_fails_by_failures_alone() -> None:
    found = []
    rows = [(row, "") for row in ENDS] + [(row, "away") for row in UNCOMPOSED]
    for (first, second, *_), problem in rows:
        state = after(planned(step("a", "echo"), step("b", "echo")))
        for each in (of("a", first), of("b", second)):
            then(state, each)
        if state.replanning:
            then(state, planned(revision=1))
        response = ended(state, problem=problem)
        status, outcome = RunStatus.Name(response.status), Outcome.Name(response.outcome)
        found.append((status.removeprefix("RUN_STATUS_"), outcome.removeprefix("OUTCOME_")))
    assert found == [(status, outcome) for (*_, status, outcome), _ in rows]


def test_answer_that_was_cut_off_is_said_to_be() -> None:
    state = after(planned(step("a", "echo")))
    then(state, finished("a"))
    assert ended(state, cut_off=True).outcome == Outcome.OUTCOME_CUT_OFF
    assert ended(state, cut_off=False).outcome == Outcome.OUTCOME_ANSWERED


@pytest.mark.requirement("C-23")
def test_steps_made_of_what_is_not_there_are_skipped_and_not_replanned() -> None:
    for end, why in (
        (NOT_THERE, "found that its source holds nothing of the kind"),
        (DENIED, "was denied"),
        (EXPIRED, "was not decided in time"),
        (SKIPS, "was not run"),
    ):
        refers = step("b", "echo", "Mail @{outputs.a.rows} to Ann.")
        unsure = PlannerDecision(confidence=0.1)
        after_it = step("c", "echo", "c", "a")
        state = after(planned(step("a", "echo", "Find it"), refers, after_it, decision=unsure))
        assert then(state, end) == ["c"], "what does not refer to it runs"
        assert then(state, finished("c")) == COMPOSES, why
        result = state.steps["b"].result
        assert result is not None
        assert (result.status, result.outcome) == (SKIPPED, Outcome.OUTCOME_SKIPPED)
        assert result.error.message == (
            f'Not done: Mail … to Ann. It needs the result of "Find it", which {why}.'
        )


@pytest.mark.requirement("Q-09")
def test_what_was_not_done_is_named_with_the_reason() -> None:
    for status, by, text in (
        (APPROVAL_STATUS_DENIED, "ada", "The approval was denied by you, so this was not done: "),
        (APPROVAL_STATUS_DENIED, "bea", "The approval was denied by another approver, so this "),
        (APPROVAL_STATUS_TIMED_OUT, "", "It was not decided in time, so this was not done: "),
    ):
        state, requested = asking()
        approval = requested.approval_requested.approval
        approval.user_id = "ada"
        approval.actions[0].summary = "Mail the\nreport to \u202eAnn."
        decision = decided(requested, status)
        decision.approval_resolved.approval.decided_by = by
        then(state, decision)
        result = state.steps["a"].result
        assert result is not None
        assert result.error.message.startswith(text)
        assert result.error.message.endswith(": Mail the report to \\u{202E}Ann.")
