"""Outcome unknown: every end of a step that may have acted says so."""

from datetime import UTC, datetime, timedelta

import pytest
from gateway_harness.decide_logs import (
    START,
    accepted,
    adopted,
    asking,
    classified,
    decided,
    event,
    finished,
    planned,
    recorded,
    wanted,
)

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    AGENT_EXECUTION_STATUS_SKIPPED,
    SIDE_EFFECT_CLASS_IDEMPOTENT,
    SIDE_EFFECT_CLASS_IRREVERSIBLE,
    AgentCard,
    AgentResult,
    Tool,
)
from bos.gateway.v1 import (
    APPROVAL_STATUS_APPROVED,
    APPROVAL_STATUS_DENIED,
    APPROVAL_STATUS_TIMED_OUT,
)
from bos.runlog.v1 import CancelRequested, LogEvent
from bos_gateway.core.decide import Record, decide
from bos_gateway.core.fold import apply, fold
from bos_gateway.core.proposals import MAX_APPROVAL_BYTES
from bos_gateway.core.run_state import RunState
from bos_testkit.plans import step

LATE = START + timedelta(seconds=92)
CANCEL = event(cancel_requested=CancelRequested(reason="enough"))
QUESTION = finished("b", AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION)


def performing(effect: int = SIDE_EFFECT_CLASS_IRREVERSIBLE) -> RunState:
    """What was approved is being performed, beside another step."""
    state, requested = asking(step("b", "echo"), effect=effect)
    apply(state, decided(requested))
    recorded(state)
    return state


def asked_again() -> tuple[RunState, LogEvent]:
    """Its performer is gone, and an approver is asked what to do."""
    state = performing()
    apply(state, adopted())
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    for each in record.events:
        apply(state, each)
    return state, record.events[0]


def ended(state: RunState, now: datetime) -> AgentResult:
    """What the first step ends with, in its own event or with the run."""
    wanted(state, now)
    if state.response is None:
        result = state.steps["a"].result
    else:
        result = next(each for each in state.response.agent_results if each.agent_id == "echo_0")
    assert result is not None
    return result


def is_unknown(result: AgentResult) -> bool:
    assert result.status == AGENT_EXECUTION_STATUS_FAILED
    performed = [(each.action.digest, each.outcome_unknown) for each in result.performed_actions]
    return result.error.type == "OutcomeUnknown" and performed == [("sha256:1", True)]


@pytest.mark.parametrize(
    ("outcome", "now"),
    [(None, LATE), (CANCEL, START)],
    ids=["late", "cancel"],
)
def test_what_was_being_performed_when_the_run_had_to_end(
    outcome: LogEvent | None, now: datetime
) -> None:
    state = performing()
    if outcome is not None:
        apply(state, outcome)
    result = ended(state, now)
    assert is_unknown(result)


@pytest.mark.parametrize(
    ("outcome", "now"), [(QUESTION, START), (None, LATE)], ids=["question", "late"]
)
def test_what_is_known_by_its_key_and_cannot_be_sent_again(
    outcome: LogEvent | None, now: datetime
) -> None:
    state = performing(SIDE_EFFECT_CLASS_IDEMPOTENT)
    if outcome is not None:
        apply(state, outcome)
    apply(state, adopted())
    assert is_unknown(ended(state, now))


@pytest.mark.parametrize("outcome", [CANCEL, QUESTION], ids=["cancel", "question"])
def test_run_that_ends_before_decision_about_unknown_outcome(outcome: LogEvent) -> None:
    state, _ = asked_again()
    apply(state, outcome)
    result = ended(state, START)
    assert is_unknown(result)
    assert "was not done" not in result.error.message


@pytest.mark.parametrize(
    "status", [APPROVAL_STATUS_APPROVED, APPROVAL_STATUS_DENIED, APPROVAL_STATUS_TIMED_OUT]
)
@pytest.mark.parametrize(
    ("outcome", "now"), [(None, LATE), (QUESTION, START)], ids=["late", "question"]
)
def test_decision_of_which_nothing_comes_any_more(
    status: int, outcome: LogEvent | None, now: datetime
) -> None:
    state, requested = asked_again()
    if outcome is not None:
        apply(state, outcome)
    apply(state, decided(requested, status))
    assert is_unknown(ended(state, now))


def test_no_tokens_for_what_is_to_be_done_again() -> None:
    state, requested = asked_again()
    state.request.settings.max_tokens = 10_000
    ending = finished("b")
    ending.step_finished.result.usage.input_tokens = 9_000
    apply(state, ending)
    apply(state, decided(requested))
    assert is_unknown(ended(state, START))


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (APPROVAL_STATUS_DENIED, "denied_by_user"),
        (APPROVAL_STATUS_TIMED_OUT, "hitl_timeout"),
    ],
)
@pytest.mark.parametrize(
    ("outcome", "now"), [(None, LATE), (QUESTION, START)], ids=["late", "question"]
)
@pytest.mark.requirement("M-11")
def test_refusal_counts_also_if_an_approval_had_no_effect(
    status: int, reason: str, outcome: LogEvent | None, now: datetime
) -> None:
    state, requested = asking(step("b", "echo"))
    if outcome is not None:
        apply(state, outcome)
    apply(state, decided(requested, status))
    result = ended(state, now)
    assert (result.status, result.error.type) == (AGENT_EXECUTION_STATUS_SKIPPED, reason)


@pytest.mark.parametrize(
    ("effect", "error"),
    [
        (SIDE_EFFECT_CLASS_IRREVERSIBLE, "OutcomeUnknown"),
        (SIDE_EFFECT_CLASS_IDEMPOTENT, "DeadlineExceeded"),
    ],
)
def test_interrupted_step_found_after_its_deadline(effect: int, error: str) -> None:
    start = accepted()
    start.run_accepted.cards.append(
        AgentCard(name="echo", tools=[Tool(name="x", side_effect=effect)])
    )
    state = fold("r", [start, planned(step("a", "echo"))])
    wanted(state)
    apply(state, adopted())
    assert ended(state, LATE).error.type == error


def test_person_has_as_long_for_second_request_as_for_first() -> None:
    state = performing()
    first = state.steps["a"].approval
    assert first is not None
    state.request.user_id = "ann"
    first.create_time.FromDatetime(START)
    first.expire_time.FromDatetime(START + timedelta(seconds=120))
    apply(state, adopted())
    later = START + timedelta(seconds=30)
    (record,) = decide(state, later)
    assert isinstance(record, Record)
    asked = record.events[0].approval_requested.approval
    assert asked.create_time.ToDatetime(tzinfo=UTC) == later
    assert asked.expire_time.ToDatetime(tzinfo=UTC) == later + timedelta(seconds=120)
    assert (asked.run_id, asked.user_id, asked.agent_id) == (
        state.run_id,
        "ann",
        state.steps["a"].agent_id,
    )


def test_no_approval_is_requested_for_an_unstarted_action() -> None:
    """It was approved with instructions, so another proposal was being made of it."""
    state, requested = asking()
    unprotected = Tool(name="other", side_effect=SIDE_EFFECT_CLASS_IRREVERSIBLE)
    state.request.cards[0].tools.append(unprotected)
    apply(state, decided(requested, instructions="but quickly"))
    (command,) = decide(state, START)
    apply(state, classified(command))
    recorded(state)
    apply(state, adopted())
    result = ended(state, START)
    assert result.error.type == "OutcomeUnknown"
    assert not result.performed_actions


def test_unknown_outcome_request_is_bounded_for_any_text() -> None:
    state = performing()
    sent = state.steps["a"].sub_task
    assert sent is not None
    sent.task = "x" * MAX_APPROVAL_BYTES
    apply(state, adopted())
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    assert record.events[0].ByteSize() < MAX_APPROVAL_BYTES
