"""Outcomes of steps and of runs."""

import pytest

from bos.agent.v1 import AgentExecutionStatus, AgentResult
from bos.common.v1 import AgentError, Outcome
from bos_plans import EndedStep, run_outcome, step_outcome

pytestmark = pytest.mark.requirement("Q-08", "Q-09")

RESULTS = (
    # status, what the agent says, type of the error: outcome
    ("SUCCEEDED", "UNSPECIFIED", "", "ANSWERED"),
    ("SUCCEEDED", "EMPTY", "", "EMPTY"),
    ("SUCCEEDED", "NOT_IN_SOURCE", "", "NOT_IN_SOURCE"),
    ("SUCCEEDED", "CUT_OFF", "", "CUT_OFF"),
    ("SUCCEEDED", "DENIED", "", "ANSWERED"),
    ("SKIPPED", "ANSWERED", "denied_by_user", "DENIED"),
    ("SKIPPED", "UNSPECIFIED", "hitl_timeout", "EXPIRED"),
    ("SKIPPED", "UNSPECIFIED", "hitl_skipped_non_streaming", "SKIPPED"),
    ("FAILED", "ANSWERED", "denied_by_user", "UNSPECIFIED"),
    ("PENDING", "ANSWERED", "", "UNSPECIFIED"),
)
RUNS = (
    # steps with what they rest on: outcome of the run
    ("", "ANSWERED"),
    ("a:ANSWERED b:EMPTY", "ANSWERED"),
    ("a:EMPTY b:EMPTY", "EMPTY"),
    ("a:EMPTY b:ANSWERED<a", "ANSWERED"),
    ("a:NOT_IN_SOURCE b:NOT_IN_SOURCE", "NOT_IN_SOURCE"),
    ("a:NOT_IN_SOURCE b:SKIPPED<a c:SKIPPED<b", "NOT_IN_SOURCE"),
    ("a:NOT_IN_SOURCE b:ANSWERED", "PARTLY"),
    ("a:NOT_IN_SOURCE b:ANSWERED<a", "PARTLY"),
    ("a:DENIED b:ANSWERED<a", "PARTLY"),
    ("a:NOT_IN_SOURCE b:DENIED", "DENIED"),
    ("a:DENIED", "DENIED"),
    ("a:ANSWERED b:DENIED<a", "DENIED"),
    ("a:ANSWERED b:DENIED", "PARTLY"),
    ("a:DENIED b:SKIPPED<a", "DENIED"),
    ("a:ANSWERED b:EXPIRED<a", "EXPIRED"),
    ("a:EXPIRED b:DENIED", "DENIED"),
    ("a:ANSWERED b:SKIPPED<a", "SKIPPED"),
    ("a:PARTLY b:ANSWERED<a", "PARTLY"),
    ("a:ANSWERED b:CUT_OFF", "CUT_OFF"),
    ("a:ANSWERED b:PREMISE_REFUTED", "PREMISE_REFUTED"),
    ("a:ANSWERED b:UNSPECIFIED", "PARTLY"),
    ("a:ANSWERED b:UNSPECIFIED<a", "PARTLY"),
    ("a:UNSPECIFIED b:ANSWERED<a", "PARTLY"),
    ("a:DENIED b:UNSPECIFIED", "UNSPECIFIED"),
    ("a:UNSPECIFIED b:SKIPPED<a", "UNSPECIFIED"),
    ("a:DENIED<b b:SKIPPED<a", "DENIED"),
    ("a:ANSWERED<b b:EMPTY<a", "ANSWERED"),
)


def test_outcome_of_a_step_follows_from_status_and_reason() -> None:
    found = [
        (status, said, error, Outcome.Name(step_outcome(result)).removeprefix("OUTCOME_"))
        for status, said, error, _ in RESULTS
        for result in [
            AgentResult(
                status=AgentExecutionStatus.Value(f"AGENT_EXECUTION_STATUS_{status}"),
                outcome=Outcome.Value(f"OUTCOME_{said}"),
                error=AgentError(type=error),
            )
        ]
    ]
    assert found == list(RESULTS)


def steps_of(text: str) -> dict[str, EndedStep]:
    steps = {}
    for each in text.split():
        step_id, _, rest = each.partition(":")
        outcome, _, needs = rest.partition("<")
        steps[step_id] = EndedStep(Outcome.Value(f"OUTCOME_{outcome}"), frozenset(needs))
    return steps


def test_outcome_of_a_run_follows_from_its_steps() -> None:
    found = [
        (text, Outcome.Name(run_outcome(steps_of(text))).removeprefix("OUTCOME_"))
        for text, _ in RUNS
    ]
    assert found == list(RUNS)


def test_answer_that_was_cut_off_is_no_whole_one() -> None:
    for text, expected in (
        ("a:ANSWERED", Outcome.OUTCOME_CUT_OFF),
        ("a:DENIED", Outcome.OUTCOME_DENIED),
        ("", Outcome.OUTCOME_CUT_OFF),
    ):
        assert run_outcome(steps_of(text), cut_off=True) == expected, text
