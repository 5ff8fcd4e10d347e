"""Outcome unknown: every end of a step that may have acted says so, and when it is tried again."""

from datetime import UTC, datetime, timedelta

import pytest
from gateway_harness.run_logs import (
    CANCEL,
    FAILED,
    IRREVERSIBLE,
    SKIPPED,
    START,
    SUCCEEDED,
    accepted,
    acting,
    adopted,
    after,
    asked_again,
    asking,
    classified,
    decided,
    finished,
    performing,
    planned,
    record_of,
    recorded,
    running,
    wanted,
)

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    SIDE_EFFECT_CLASS_IDEMPOTENT,
    AgentResult,
    PerformedAction,
    Tool,
)
from bos.common.v1 import AgentError
from bos.gateway.v1 import (
    APPROVAL_STATUS_APPROVED,
    APPROVAL_STATUS_DENIED,
    APPROVAL_STATUS_TIMED_OUT,
)
from bos.runlog.v1 import LogEvent
from bos_gateway.core.decide import decide
from bos_gateway.core.failures import FailedAttempt, may_attempt_again
from bos_gateway.core.fold import apply
from bos_gateway.core.proposals import MAX_APPROVAL_BYTES
from bos_gateway.core.run_state import RunState
from bos_gateway.core.unknown_outcomes import attempted_before, leaves_unknown, says_unknown
from bos_testkit.plans import step

LATE = START + timedelta(seconds=92)
QUESTION = finished("b", AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION)


@pytest.mark.parametrize(
    ("transient", "unsent", "approved", "repeatable", "retries_left", "again"),
    [
        # Approved and never sent: for any tool and any card.
        (True, True, True, False, 0, True),
        (True, True, True, True, 0, True),
        # Approved and perhaps done: only where the other side knows the key.
        (True, False, True, True, 0, True),
        (True, False, True, False, 9, False),
        # Nothing that would end better another time.
        (False, True, True, False, 9, False),
        (False, False, True, True, 9, False),
        # Not approved: as often as the card says, and only if it doubles nothing.
        (True, False, False, True, 1, True),
        (True, False, False, True, 0, False),
        (True, True, False, True, 0, False),
        (True, False, False, False, 1, False),
        (True, True, False, False, 1, False),
        (False, False, False, True, 1, False),
    ],
)
def test_another_attempt_is_made_where_it_doubles_nothing(
    transient: bool, unsent: bool, approved: bool, repeatable: bool, retries_left: int, again: bool
) -> None:
    failed = FailedAttempt(transient, unsent)
    made = may_attempt_again(
        failed, approved=approved, repeatable=repeatable, retries_left=retries_left
    )
    assert made is again


@pytest.mark.parametrize(
    ("waited_for", "repeatable", "again"),
    [(True, True, True), (False, True, False), (True, False, False)],
)
def test_what_is_away_and_waited_for_costs_no_attempt_of_card(
    waited_for: bool, repeatable: bool, again: bool
) -> None:
    failed = FailedAttempt(transient=True, away=True)
    made = may_attempt_again(
        failed, approved=False, repeatable=repeatable, retries_left=0, waited_for=waited_for
    )
    assert made is again


@pytest.mark.parametrize(
    ("status", "error", "performed", "unknown"),
    [
        (FAILED, "OutcomeUnknown", [], True),
        (FAILED, "Unavailable", [False, True], True),
        (FAILED, "Unavailable", [False], False),
        (FAILED, "HttpError", [], False),
        (SUCCEEDED, "", [True], False),
    ],
)
def test_agent_says_itself_what_it_does_not_know(
    status: int, error: str, performed: list[bool], unknown: bool
) -> None:
    result = AgentResult(status=status, error=AgentError(type=error))
    result.performed_actions.extend(PerformedAction(outcome_unknown=each) for each in performed)
    assert says_unknown(result) is unknown
    # If not, a failure after a lost attempt leaves it unknown.
    assert leaves_unknown(status, lost=True) is (status == FAILED)
    assert not leaves_unknown(status, lost=False)


def test_next_owner_does_not_know_what_the_first_one_did() -> None:
    state = performing(SIDE_EFFECT_CLASS_IDEMPOTENT)
    assert not attempted_before(state.steps["a"], running(state).attempt)
    apply(state, adopted())
    recorded(state)
    assert attempted_before(state.steps["a"], running(state).attempt)
    state, requested = asked_again()
    apply(state, decided(requested))
    recorded(state)
    assert attempted_before(state.steps["a"], running(state).attempt)


def ended(state: RunState, now: datetime, outcome: LogEvent | None = None) -> AgentResult:
    """What the first step ends with, in its own event or with the run."""
    if outcome is not None:
        apply(state, outcome)
    wanted(state, now)
    if state.response is None:
        result = state.steps["a"].result
    else:
        result = next(each for each in state.response.agent_results if each.agent_id == "echo_0")
    return result


def check_unknown(result: AgentResult) -> None:
    assert (result.status, result.error.type) == (FAILED, "OutcomeUnknown")
    performed = [(each.action.digest, each.outcome_unknown) for each in result.performed_actions]
    assert performed == [("sha256:1", True)]


late_or_asked = pytest.mark.parametrize(
    ("outcome", "now"), [(None, LATE), (QUESTION, START)], ids=["late", "question"]
)


@pytest.mark.parametrize(("outcome", "now"), [(None, LATE), (CANCEL, START)], ids=["late", "end"])
def test_what_was_being_performed_when_the_run_had_to_end(
    outcome: LogEvent | None, now: datetime
) -> None:
    check_unknown(ended(performing(), now, outcome))


@late_or_asked
def test_what_is_known_by_its_key_and_cannot_be_sent_again(
    outcome: LogEvent | None, now: datetime
) -> None:
    state = performing(SIDE_EFFECT_CLASS_IDEMPOTENT)
    if outcome is not None:
        apply(state, outcome)
    check_unknown(ended(state, now, adopted()))


@pytest.mark.parametrize("outcome", [CANCEL, QUESTION], ids=["cancel", "question"])
def test_run_that_ends_before_decision_about_unknown_outcome(outcome: LogEvent) -> None:
    result = ended(asked_again()[0], START, outcome)
    check_unknown(result)
    assert "was not done" not in result.error.message


@late_or_asked
@pytest.mark.parametrize(
    "status", [APPROVAL_STATUS_APPROVED, APPROVAL_STATUS_DENIED, APPROVAL_STATUS_TIMED_OUT]
)
def test_decision_of_which_nothing_comes_any_more(
    status: int, outcome: LogEvent | None, now: datetime
) -> None:
    state, requested = asked_again()
    if outcome is not None:
        apply(state, outcome)
    check_unknown(ended(state, now, decided(requested, status)))


def test_no_tokens_for_what_is_to_be_done_again() -> None:
    state, requested = asked_again()
    state.request.settings.max_tokens = 10_000
    ending = finished("b")
    ending.step_finished.result.usage.input_tokens = 9_000
    apply(state, ending)
    check_unknown(ended(state, START, decided(requested)))


@late_or_asked
@pytest.mark.parametrize(
    ("status", "reason"),
    [(APPROVAL_STATUS_DENIED, "denied_by_user"), (APPROVAL_STATUS_TIMED_OUT, "hitl_timeout")],
)
@pytest.mark.requirement("M-11")
def test_refusal_counts_also_if_an_approval_had_no_effect(
    status: int, reason: str, outcome: LogEvent | None, now: datetime
) -> None:
    state, requested = asking(step("b", "echo"))
    if outcome is not None:
        apply(state, outcome)
    result = ended(state, now, decided(requested, status))
    assert (result.status, result.error.type) == (SKIPPED, reason)


@pytest.mark.parametrize(
    ("effect", "error"),
    [(IRREVERSIBLE, "OutcomeUnknown"), (SIDE_EFFECT_CLASS_IDEMPOTENT, "DeadlineExceeded")],
)
def test_interrupted_step_found_after_its_deadline(effect: int, error: str) -> None:
    state = after(planned(step("a", "echo")), start=accepted(acting(effect, name="echo")))
    assert ended(state, LATE, adopted()).error.type == error


def test_person_has_as_long_for_second_request_as_for_first() -> None:
    state = performing()
    step_state = state.steps["a"]
    first = step_state.approval
    state.request.user_id = "ann"
    first.create_time.FromDatetime(START)
    first.expire_time.FromDatetime(START + timedelta(seconds=120))
    apply(state, adopted())
    later = START + timedelta(seconds=30)
    asked = record_of(state, later)[0].approval_requested.approval
    assert asked.create_time.ToDatetime(tzinfo=UTC) == later
    assert asked.expire_time.ToDatetime(tzinfo=UTC) == later + timedelta(seconds=120)
    assert (asked.run_id, asked.user_id, asked.agent_id) == ("r", "ann", step_state.agent_id)


def test_no_approval_is_requested_for_an_unstarted_action() -> None:
    """It was approved with instructions, so another proposal was being made of it."""
    state, requested = asking()
    state.request.cards[0].tools.append(Tool(name="other", side_effect=IRREVERSIBLE))
    apply(state, decided(requested, instructions="but quickly"))
    apply(state, classified(decide(state, START)[0]))
    recorded(state)
    result = ended(state, START, adopted())
    assert result.error.type == "OutcomeUnknown"
    assert not result.performed_actions


def test_unknown_outcome_request_is_bounded_for_any_text() -> None:
    state = performing()
    sent = state.steps["a"].sub_task
    sent.task = "x" * MAX_APPROVAL_BYTES
    apply(state, adopted())
    assert record_of(state)[0].ByteSize() < MAX_APPROVAL_BYTES
