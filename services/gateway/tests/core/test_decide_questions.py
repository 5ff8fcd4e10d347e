"""A step that has a question for the user ends the run, and lets nothing new begin."""

import pytest
from gateway_harness.revised_logs import (
    START,
    accepted,
    acting,
    after,
    event,
    failed,
    finished,
    planned,
    wanted,
)

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    SIDE_EFFECT_CLASS_IRREVERSIBLE,
    ProposedAction,
)
from bos.common.v1 import Clarification, ClarifyingQuestion
from bos.gateway.v1 import (
    APPROVAL_STATUS_EXPIRED,
    APPROVAL_STATUS_PENDING,
    RUN_STATUS_CLARIFICATION_NEEDED,
    Approval,
)
from bos.runlog.v1 import (
    ApprovalRequested,
    LogEvent,
    RunAdopted,
)
from bos_gateway.core.decide import Record, decide
from bos_gateway.core.fold import apply
from bos_testkit.plans import step

# Questions to the user


def asks(step_id: str = "a") -> LogEvent:
    question = Clarification(questions=[ClarifyingQuestion(question="Which year?")])
    return finished(step_id, AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION, clarification=question)


@pytest.mark.requirement("D-04")
def test_question_of_a_step_starts_nothing_and_waits_for_running() -> None:
    state = after(
        planned(step("a", "echo"), step("b", "echo"), step("c", "echo", "x", "b")),
    )
    apply(state, asks())
    assert wanted(state) == ["b"]
    assert state.steps["c"].result is not None
    assert state.steps["c"].result.error.type == "NotRun"
    apply(state, finished("b"))
    assert wanted(state) == []
    assert state.response is not None
    assert state.response.status == RUN_STATUS_CLARIFICATION_NEEDED


@pytest.mark.requirement("C-23")
def test_question_of_a_step_comes_before_another_plan() -> None:
    state = after(planned(step("a", "echo"), step("b", "echo")))
    apply(state, failed("b"))
    apply(state, asks())
    assert wanted(state) == []
    assert state.response is not None
    assert state.response.status == RUN_STATUS_CLARIFICATION_NEEDED


def test_question_of_a_step_closes_undecided_requests() -> None:
    card = acting(SIDE_EFFECT_CLASS_IRREVERSIBLE, protected=True)
    state = after(planned(step("a", "echo"), step("b", "actor")), start=accepted(card))
    action = ProposedAction(action_id="1", tool="act", digest="sha256:1")
    approval = Approval(
        approval_id="b1", step_id="b", actions=[action], status=APPROVAL_STATUS_PENDING
    )
    apply(state, event(approval_requested=ApprovalRequested(approval=approval)))
    apply(state, asks())
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    closed, end = record.events
    assert closed.approval_resolved.approval.status == APPROVAL_STATUS_EXPIRED
    assert end.run_finished.response.status == RUN_STATUS_CLARIFICATION_NEEDED


def test_interrupted_step_is_not_restarted_behind_a_question() -> None:
    state = after(planned(step("a", "echo"), step("b", "echo")))
    apply(state, asks())
    apply(state, event(run_adopted=RunAdopted(reason="lease_expired")))
    assert wanted(state) == []
    assert state.steps["b"].result is not None
    assert state.steps["b"].result.error.type == "NotRun"
