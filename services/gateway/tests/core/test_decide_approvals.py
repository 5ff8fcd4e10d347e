"""Fold and decide, driven without any service: what a run wants that has people to ask."""

from datetime import timedelta

import pytest
from gateway_harness.run_logs import (
    CANCEL,
    COMPOSES,
    FAILED,
    IRREVERSIBLE,
    START,
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
    proposing,
    record_of,
    recorded,
    running,
    then,
    wanted,
)

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    INSTRUCTION_MODE_ENHANCE,
    INSTRUCTION_MODE_OVERRIDE,
    SIDE_EFFECT_CLASS_IDEMPOTENT,
    AgentResult,
    ApprovalContext,
)
from bos.gateway.v1 import (
    APPROVAL_KIND_OUTCOME_UNKNOWN,
    APPROVAL_STATUS_CANCELLED,
    APPROVAL_STATUS_DENIED,
    APPROVAL_STATUS_PENDING,
    APPROVAL_STATUS_TIMED_OUT,
    RUN_STATUS_CANCELLED,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    Approvers,
)
from bos.runlog.v1 import LogEvent
from bos_gateway.core.budget import counted
from bos_gateway.core.decide import Classify, decide, next_wake
from bos_gateway.core.fold import apply
from bos_gateway.core.run_state import BrokenLog, RunState
from bos_testkit.plans import step

APPROVERS = Approvers(groups=["finance"], four_eyes=True)


def result_of(state: RunState) -> AgentResult:
    return state.steps["a"].result


def context_of(state: RunState) -> ApprovalContext:
    return running(state).approval


def test_run_that_can_do_nothing_but_wait_is_let_go() -> None:
    state, _ = asking()
    assert recorded(state) == ["run_released"]
    assert state.released
    assert state.status == RUN_STATUS_WAITING_FOR_APPROVAL
    apply(state, adopted())
    assert not state.released


@pytest.mark.requirement("M-13")
def test_waiting_step_takes_no_place_and_holds_its_dependents() -> None:
    state, _ = asking(step("b", "echo"), step("c", "echo"), step("d", "echo", "d", "a"))
    assert wanted(state) == ["b", "c"]
    assert not state.released, "it has other work"
    assert then(state, finished("b")) == ["c"]


@pytest.mark.parametrize(
    ("mode", "instructions"),
    [(INSTRUCTION_MODE_ENHANCE, "one\ntwo"), (INSTRUCTION_MODE_OVERRIDE, "two")],
)
def test_instructions_add_to_earlier_ones_or_take_their_place(mode: int, instructions: str) -> None:
    state, requested = asking()
    apply(state, decided(requested, instructions="one"))
    apply(state, classified(decide(state, START)[0]))
    assert recorded(state) == ["step_dispatched"]
    assert not context_of(state).approved_actions, "they allow nothing yet"
    assert context_of(state).user_instructions == "one"
    requested = proposing(number=2)
    apply(state, requested)
    apply(state, decided(requested, instructions="two"))
    apply(state, classified(decide(state, START)[0], mode))
    recorded(state)
    assert context_of(state).user_instructions == instructions
    assert context_of(state).instruction_mode == mode


def test_others_go_on_while_instructions_are_classified() -> None:
    state, requested = asking(step("b", "echo"))
    assert then(state, decided(requested, instructions="and more")) == ["b", Classify]


@pytest.mark.parametrize(
    ("status", "reason"),
    [(APPROVAL_STATUS_DENIED, "denied_by_user"), (APPROVAL_STATUS_TIMED_OUT, "hitl_timeout")],
)
def test_without_an_approval_the_step_ends(status: int, reason: str) -> None:
    state, requested = asking()
    apply(state, decided(requested, status))
    assert recorded(state) == ["step_progressed", "step_finished"]
    result = result_of(state)
    assert result.error.type == result.partial_data.fields["reason"].string_value == reason
    assert wanted(state) == COMPOSES


def test_idempotent_approved_action_is_sent_again_by_a_new_owner() -> None:
    state = performing(SIDE_EFFECT_CLASS_IDEMPOTENT)
    apply(state, adopted())
    assert recorded(state) == ["step_dispatched", "step_dispatched"]
    assert context_of(state).approved_actions


def test_person_is_asked_about_an_unknown_outcome() -> None:
    state, requested = asked_again(approvers=APPROVERS)
    approval = requested.approval_requested.approval
    assert approval.kind == APPROVAL_KIND_OUTCOME_UNKNOWN
    assert approval.status == APPROVAL_STATUS_PENDING
    assert approval.task_description.startswith("It is not known whether this was done: ")
    assert [action.digest for action in approval.actions] == ["sha256:1"]
    assert approval.approvers == APPROVERS  # the same approvers as before
    assert wanted(state) == ["b"]
    # What is approved again is performed again, exactly.
    apply(state, decided(requested))
    assert recorded(state) == ["effect_intended", "step_dispatched"]
    assert running(state).attempt == 3
    assert context_of(state).approved_actions == approval.actions
    # And once more, if that is interrupted as well: another request, not the same.
    apply(state, adopted())
    again = record_of(state)[0].approval_requested.approval
    assert again.approval_id != approval.approval_id
    assert again.task_description == approval.task_description


@pytest.mark.parametrize("status", [APPROVAL_STATUS_DENIED, APPROVAL_STATUS_TIMED_OUT])
def test_denied_repetition_leaves_the_outcome_unknown(status: int) -> None:
    state, requested = asked_again()
    apply(state, decided(requested, status))
    assert recorded(state) == ["step_progressed", "step_finished"]
    result = result_of(state)
    assert (result.status, result.error.type) == (FAILED, "OutcomeUnknown")
    (performed,) = result.performed_actions
    assert performed.outcome_unknown
    assert performed.action.digest == "sha256:1"


def test_no_approval_is_requested_beside_a_question_to_the_user() -> None:
    state = performing()
    apply(state, adopted())
    state.steps["b"].status = AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION
    assert recorded(state) == ["step_progressed", "step_finished"]
    assert result_of(state).error.type == "OutcomeUnknown"


def test_step_that_can_only_propose_is_sent_again_after_adoption() -> None:
    card = acting(IRREVERSIBLE, protected=True, name="echo")
    state = after(planned(step("a", "echo")), start=accepted(card))
    apply(state, adopted())
    assert recorded(state) == ["step_dispatched"]


@pytest.mark.parametrize("hours", [0, 1000])
def test_time_that_a_person_takes_does_not_count(hours: int) -> None:
    state, requested = asking()
    later = START + timedelta(hours=hours)
    assert next_wake(state) is None
    assert recorded(state, later) == ["run_released"]
    apply(state, adopted())
    apply(state, decided(requested, now=later))
    assert recorded(state, later) == ["effect_intended", "step_dispatched"]
    assert wanted(state, later + timedelta(seconds=90)) == ["a"]
    assert wanted(state, later + timedelta(seconds=92)) == COMPOSES


def test_cancelled_run_closes_undecided_requests() -> None:
    state, _ = asking()
    apply(state, CANCEL)
    resolved, end = record_of(state)
    assert resolved.approval_resolved.approval.status == APPROVAL_STATUS_CANCELLED
    assert end.run_finished.response.status == RUN_STATUS_CANCELLED


def proposed(max_tokens: int, *others: object, spent: int) -> tuple[RunState, LogEvent]:
    """A run with a budget whose step ``a`` has proposed something that it paid for."""
    start = accepted(max_tokens=max_tokens, max_concurrency=2, max_revisions=0)
    state = after(planned(step("a", "echo"), *others), start=start)
    assert bool(state.steps["a"].reserved_tokens) is bool(max_tokens)
    requested = proposing()
    requested.approval_requested.result.usage.input_tokens = spent
    apply(state, requested)
    return state, requested


def test_proposal_is_paid_for_and_gives_back_what_was_held() -> None:
    state, requested = proposed(100_000, spent=70)
    assert state.steps["a"].reserved_tokens == 0
    assert state.usage.input_tokens == 70
    apply(state, decided(requested))
    recorded(state)
    assert state.steps["a"].reserved_tokens > 0


@pytest.mark.parametrize("second", ["decision", "request"])
def test_log_with_two_decisions_or_requests_at_once_is_refused(second: str) -> None:
    state, requested = asking()
    if second == "decision":
        apply(state, decided(requested))
    with pytest.raises(BrokenLog):
        apply(state, requested if second == "request" else decided(requested))


def classifying(max_tokens: int, *others: object, spent: int = 0) -> tuple[RunState, Classify]:
    """A run with a budget in which it is being found out what instructions mean."""
    state, requested = proposed(max_tokens, *others, spent=spent)
    apply(state, decided(requested, instructions="and more"))
    (command,) = [each for each in decide(state, START) if isinstance(each, Classify)]
    return state, command


def counted_at_the_end(state: RunState) -> int:
    apply(state, CANCEL)
    return counted(record_of(state)[-1].run_finished.response.metadata.usage)


@pytest.mark.parametrize(
    ("max_tokens", "spent", "held"), [(0, 7, 0), (2000, 1000, 600), (100_000, 7, 1000)]
)
def test_classifying_counts_in_full_when_the_run_ends_meanwhile(
    max_tokens: int, spent: int, held: int
) -> None:
    state, command = classifying(max_tokens, spent=spent)
    assert (command.token_budget or 0) == held
    assert counted_at_the_end(state) == spent + held


def test_classifying_that_has_ended_counts_what_it_took() -> None:
    state, command = classifying(100_000)
    ended = classified(command)
    ended.instructions_classified.usage.output_tokens = 7
    apply(state, ended)
    assert counted_at_the_end(state) == 7


def test_interrupted_classifying_counts_in_full() -> None:
    state, _ = classifying(100_000)
    for adoptions in (1, 2):
        apply(state, adopted())
        assert counted(state.usage) == adoptions * 1000
        (command,) = decide(state, START)
        assert isinstance(command, Classify)
        assert command.token_budget == 1000
    # Also if it comes too late, and then no more.
    apply(state, finished("a"))
    assert counted(state.usage) == 3000
    apply(state, adopted())
    assert counted(state.usage) == 3000


def test_tokens_of_classifying_are_no_other_steps() -> None:
    state, command = classifying(2000, step("b", "echo", "x", "c"), step("c", "echo"))
    assert command.token_budget == 1000
    # Nothing is left for c beside it, and it may give some back.
    assert wanted(state) == [Classify]
    assert not state.steps["c"].settled
    apply(state, classified(command))
    assert recorded(state) == ["step_dispatched"]
