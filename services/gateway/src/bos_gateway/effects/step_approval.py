"""Approval requests of a step: for proposed actions and for unknown outcomes."""

from __future__ import annotations

from collections.abc import Sequence

from bos.agent.v1 import AgentCard, AgentResult, ProposedAction
from bos.runlog.v1 import ApprovalRequested
from bos_errors import AgentErrorType
from bos_gateway.core import proposals, result_limits
from bos_gateway.core.run_state import AWAITING_APPROVAL, FAILED, SKIPPED, RunState, StepState
from bos_gateway.core.unknown_outcomes import asked_again
from bos_gateway.effects.context import EffectContext
from bos_gateway.permits.approvers import approvers_for

_NEEDS_APPROVAL = "This agent requires human approval. Use the streaming endpoint."
# Kept of what an agent says beside its proposal, so that the event always fits into the log.
_MAX_BESIDE_BYTES = 64 * 1024


def proposal_problem(
    card: AgentCard | None, step: StepState, result: AgentResult
) -> tuple[str, str] | None:
    """Type and text of the error of a proposal that cannot be sent for approval."""
    if problem := proposals.proposal_problem(card, step, result):
        text = f"The agent {step.step.agent} cannot be asked about: {problem}."
        return AgentErrorType.AGENT_PROTOCOL_ERROR, text
    actions, description = result.proposed_actions, result.task_description
    shown = AgentResult(proposed_actions=actions, task_description=description)
    if (size := shown.ByteSize()) > proposals.MAX_APPROVAL_BYTES:
        text = f"What it proposes is too large to be shown: {size} bytes."
        return AgentErrorType.RESULT_TOO_LARGE, text
    return None


def skip_unless_asked(state: RunState, result: AgentResult) -> None:
    """Skip proposed actions, in place, that cannot or need not be approved.

    Then the proposed actions do not happen.
    """
    if denied := proposals.denied_before(state, result):
        reason = AgentErrorType.DENIED_BY_USER
        text = f"This was denied before, so it was not done: {', '.join(denied)}."
    elif done := proposals.done_before(state, result):
        reason = AgentErrorType.DONE_BEFORE
        text = f"This was done before, or may have been, so not again: {', '.join(done)}."
    elif not state.request.interactive:
        reason = AgentErrorType.HITL_SKIPPED_NON_STREAMING
        actions = proposals.action_names(result.proposed_actions)
        text = f"This action needs an approval and was not performed: {actions}."
        result.partial_data.fields["explanation"].string_value = _NEEDS_APPROVAL
    else:
        return
    result.status = SKIPPED
    result.error.type, result.error.message = reason, text
    result.partial_data.fields["reason"].string_value = reason


def request_for(
    run: EffectContext,
    step: StepState,
    revision: int,
    result: AgentResult,
    performing: Sequence[ProposedAction],
) -> ApprovalRequested | None:
    """The approval request that suspends the step, if there is one.

    Args:
        run: The run.
        step: The step.
        revision: Of the plan that the step is in.
        result: The agent's; what the request holds is taken out of it.
        performing: Approved actions that were to be performed and that must not be repeated.
    """
    if result.status == AWAITING_APPROVAL:
        return _about_proposal(run, step, revision, result)
    if not _is_unknown(result, performing):
        return None
    asked = asked_again(run.state, step, run.now(), result.error.message)
    if asked is not None:
        asked.result.usage.CopyFrom(result.usage)
        asked.result.tainted = result.tainted
    return asked


def _about_proposal(
    run: EffectContext, step: StepState, revision: int, result: AgentResult
) -> ApprovalRequested:
    settings, actions = run.deps.settings, result.proposed_actions
    by_tool, default_s = settings.approval_timeouts, settings.approval_timeout_s
    timeout = proposals.proposal_timeout(actions, by_tool, default_s)
    approvers = approvers_for(settings.approvers, step.step.agent, actions)
    approval = proposals.approval_for(run.state, step, result, run.now(), timeout, approvers)
    del result.proposed_actions[:]  # they are in the request
    (beside,) = result_limits.fit([result], _MAX_BESIDE_BYTES)
    return ApprovalRequested(revision=revision, approval=approval, result=beside)


def _is_unknown(result: AgentResult, performing: Sequence[ProposedAction]) -> bool:
    """Whether it is unknown if what was approved was done, and repeating it may double it."""
    if not performing:
        return False
    performed = result.performed_actions
    unknown = len(performed) == len(performing) and all(p.outcome_unknown for p in performed)
    failed = result.status == FAILED
    return failed and (unknown or result.error.type == AgentErrorType.OUTCOME_UNKNOWN)
