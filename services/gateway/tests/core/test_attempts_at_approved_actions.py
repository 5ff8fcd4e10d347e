"""Which failed attempts are followed by another, and what is said of actions that were lost."""

import pytest
from gateway_harness.decide_logs import START, adopted, asking, decided, recorded

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    SIDE_EFFECT_CLASS_IDEMPOTENT,
    AgentResult,
    PerformedAction,
)
from bos.common.v1 import AgentError
from bos.gateway.v1 import APPROVAL_KIND_OUTCOME_UNKNOWN
from bos_gateway.core.decide import RunStep, decide
from bos_gateway.core.failures import FailedAttempt, may_attempt_again
from bos_gateway.core.fold import apply
from bos_gateway.core.unknown_outcomes import (
    attempted_before,
    leaves_unknown,
    says_unknown,
)

FAILED, SUCCEEDED = AGENT_EXECUTION_STATUS_FAILED, AGENT_EXECUTION_STATUS_SUCCEEDED


@pytest.mark.parametrize(
    ("transient", "unsent", "approved", "repeatable", "retries_left", "again"),
    [
        # Approved and never sent: for any tool and any card.
        (True, True, True, False, 0, True),
        (True, True, True, True, 0, True),
        # Approved and perhaps done: only where the other side knows the key.
        (True, False, True, True, 0, True),
        (True, False, True, False, 0, False),
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
    ("status", "lost", "unknown"),
    [(FAILED, True, True), (FAILED, False, False), (SUCCEEDED, True, False)],
)
def test_failure_after_a_lost_attempt_leaves_the_outcome_unknown(
    status: int, lost: bool, unknown: bool
) -> None:
    assert leaves_unknown(status, lost=lost) is unknown


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


def test_first_owner_knows_that_nothing_was_attempted_before() -> None:
    state, requested = asking(effect=SIDE_EFFECT_CLASS_IDEMPOTENT)
    assert not attempted_before(state.steps["a"], 1)
    apply(state, decided(requested))
    recorded(state)
    (command,) = decide(state, START)
    assert isinstance(command, RunStep)
    assert not attempted_before(state.steps["a"], command.attempt)


def test_next_owner_does_not_know_what_the_first_one_did() -> None:
    state, requested = asking(effect=SIDE_EFFECT_CLASS_IDEMPOTENT)
    apply(state, decided(requested))
    recorded(state)
    apply(state, adopted())
    assert recorded(state) == ["step_dispatched"]
    (command,) = decide(state, START)
    assert isinstance(command, RunStep)
    assert attempted_before(state.steps["a"], command.attempt)


def test_action_that_is_done_again_may_have_been_done_before() -> None:
    state, requested = asking()
    requested.approval_requested.approval.kind = APPROVAL_KIND_OUTCOME_UNKNOWN
    requested.approval_requested.approval.approval_id = "again"
    state.steps["a"].approval = requested.approval_requested.approval
    apply(state, decided(requested))
    recorded(state)
    (command,) = decide(state, START)
    assert isinstance(command, RunStep)
    assert attempted_before(state.steps["a"], command.attempt)
