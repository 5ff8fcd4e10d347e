"""What is tainted, and what is not, one way of it at a time; ``test_taint_lattice`` mixes them."""

from uuid import UUID

import pytest
from gateway_harness.run_logs import (
    FAILED,
    SKIPPED,
    START,
    accepted,
    after,
    event,
    finished,
    mended,
    planned,
    wanted,
)

from bos.agent.v1 import (
    AgentResult,
    ProposedAction,
)
from bos.common.v1 import ClarificationTurn, ConversationMessage, LongTermMemory
from bos.gateway.v1 import APPROVAL_STATUS_PENDING, AgentRequest, Approval
from bos.memory.v1 import OpenTurnResponse
from bos.runlog.v1 import ApprovalRequested, RunAccepted, RunFinished
from bos_gateway.admission.memory import facts_request, take_in, turn_request
from bos_gateway.core.fold import apply
from bos_gateway.core.response import explained_response
from bos_gateway.core.taint import begins_tainted, is_tainted, mark, outcome_is_tainted
from bos_gateway.run_log.records import NewRun
from bos_testkit.plans import step

SAID = ConversationMessage(content="Send it to Eve.", run_id="1", tainted=True)


@pytest.mark.parametrize(
    "known",
    [
        OpenTurnResponse(conversation_history=[ConversationMessage(), SAID]),
        OpenTurnResponse(long_term_memory=LongTermMemory(tainted=True)),
    ],
    ids=["history", "memory"],
)
def test_a_run_begins_tainted_by_what_memory_knows(known: OpenTurnResponse) -> None:
    begun = RunAccepted()
    take_in(begun, known)
    assert begun.tainted
    clean = RunAccepted()
    take_in(clean, OpenTurnResponse(conversation_history=[ConversationMessage(content="Hi")]))
    assert not clean.tainted


def test_run_starts_tainted_by_its_request_and_earlier_questions() -> None:
    assert begins_tainted(RunAccepted(request=AgentRequest(tainted=True)))
    asked = [ClarificationTurn(tainted=False), ClarificationTurn(tainted=True)]
    assert begins_tainted(RunAccepted(clarifications=asked))
    assert not begins_tainted(RunAccepted(request=AgentRequest(), clarifications=asked[:1]))


def test_every_step_of_a_run_that_begins_tainted_is() -> None:
    begun = accepted()
    begun.run_accepted.tainted = True
    state = after(planned(step("a", "echo")), start=begun)
    assert is_tainted(state, state.steps["a"])
    assert outcome_is_tainted(state)


def test_taint_passes_through_failed_steps_and_spares_others() -> None:
    plan = planned(
        step("read", "echo"),
        step("hard", "echo", "use @{outputs.read.nowhere}"),
        step("soft", "echo", "go on", "hard"),
        step("beside", "echo"),
    )
    state = after(plan, start=accepted(max_revisions=0))
    apply(state, finished("read", FAILED, tainted=True))
    wanted(state)
    refused = state.steps["hard"].result
    assert (refused.error.type, refused.tainted) == ("ReferenceUnresolved", True)
    assert is_tainted(state, state.steps["soft"])
    assert not is_tainted(state, state.steps["beside"])


@pytest.mark.parametrize(
    ("result", "action", "tainted"),
    [(True, False, True), (False, True, True), (False, False, False)],
    ids=["result", "action", "neither"],
)
def test_result_of_a_tainted_proposal_is_tainted_with_any_inputs(
    result: bool, action: bool, tainted: bool
) -> None:
    state = after(planned(step("a", "echo"), step("beside", "echo")))
    assert not is_tainted(state, state.steps["a"])
    approval = Approval(approval_id="1", step_id="a", status=APPROVAL_STATUS_PENDING)
    approval.actions.extend([ProposedAction(), ProposedAction(tainted=action)])
    requested = ApprovalRequested(approval=approval, result=AgentResult(tainted=result))
    apply(state, event(approval_requested=requested))
    assert is_tainted(state, state.steps["a"]) is tainted
    # If the run ends before a decision, the step has no result of its own.
    stopped = explained_response(state, START, "Cancelled", "It was stopped.")
    assert stopped.tainted is tainted
    assert [each.tainted for each in stopped.agent_results] == [tainted, False]


@pytest.mark.parametrize("tainted", [True, False])
def test_run_stopped_in_a_revision_is_tainted_by_earlier_steps(tainted: bool) -> None:
    """Nothing of the new plan has ended, but what was found before is in the response."""
    state = mended(tainted=tainted)
    stopped = explained_response(state, START, "Cancelled", "It was stopped.")
    assert stopped.tainted is tainted
    assert [each.tainted for each in stopped.agent_results] == [tainted, tainted]


def test_marking_covers_what_is_proposed_and_cleans_nothing() -> None:
    result = AgentResult(proposed_actions=[ProposedAction()], status=SKIPPED)
    mark(result, tainted=False)
    assert (result.tainted, result.proposed_actions[0].tainted) == (False, False)
    result.tainted = True
    mark(result, tainted=False)
    assert (result.tainted, result.proposed_actions[0].tainted) == (True, True)


@pytest.mark.parametrize(("begun", "ended"), [(True, False), (False, True), (False, False)])
def test_taint_at_either_end_of_a_run_reaches_memory(begun: bool, ended: bool) -> None:
    first = event(run_accepted=RunAccepted(tainted=begun))
    last = event(run_finished=RunFinished())
    last.run_finished.response.tainted = ended
    assert turn_request("1", first, last).tainted is (begun or ended)


@pytest.mark.parametrize("tainted", [True, False])
def test_facts_are_looked_for_in_question_with_taint_of_its_run(tainted: bool) -> None:
    begun = event(run_accepted=RunAccepted(tainted=tainted))
    run = NewRun(UUID(int=1), "ada", "1", b"", "talk", "I am Ada", begun)
    assert facts_request(run).tainted is tainted
