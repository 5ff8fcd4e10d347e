"""Approved actions that may have been performed or not, and the requests about them. Pure.

The agent or replica that performed them is gone, or did not answer. The same actions are asked
about once more, with the same digests: an approval has them done again, anything else leaves them
as they are, and the step says that its outcome is unknown. Only what an approver was asked about
before is asked about again, so no request is made in a run whose client cannot be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from bos.agent.v1 import AgentExecutionStatus, AgentResult, PerformedAction, ProposedAction
from bos.gateway.v1 import APPROVAL_KIND_OUTCOME_UNKNOWN
from bos.runlog.v1 import ApprovalRequested, LogEvent
from bos_errors import AgentErrorType
from bos_gateway.core.failures import ended, failed_result
from bos_gateway.core.proposals import approval_request, not_allowed, tool_names
from bos_gateway.core.run_state import FAILED, RunState, StepState
from bos_plans import MAX_TASK_CHARS

# Agents word it as long as they like, and a task may hold whole outputs of other steps by now.
_MAX_KNOWN_CHARS: Final = 1000
_ASKS: Final = (
    "It is not known whether this was done: {known} Approve to have it done again, exactly as "
    "before; deny to leave it as it is.\n\n{task}"
)


def asked_again(
    state: RunState, step: StepState, now: datetime, known: str
) -> ApprovalRequested | None:
    """The request about what ``step`` was performing; None if it performed nothing approved.

    Args:
        state: The run.
        step: The step.
        now: When it is asked (UTC).
        known: What is known, in a sentence for the approver.
    """
    former = step.approval
    if not step.performing or former is None:
        return None
    task = step.sub_task.task if step.sub_task is not None else step.step.task
    text = _ASKS.format(known=known[:_MAX_KNOWN_CHARS], task=task[:MAX_TASK_CHARS])
    timeout = former.expire_time.ToDatetime() - former.create_time.ToDatetime()
    kind = APPROVAL_KIND_OUTCOME_UNKNOWN
    # Those who could answer before may answer now, and no others.
    approvers = former.approvers if former.HasField("approvers") else None
    approval = approval_request(state, step, now, timeout, text, former.actions, kind, approvers)
    approval.origins.extend(former.origins)
    return ApprovalRequested(revision=step.revision, approval=approval)


def uncertain_actions(step: StepState) -> Sequence[ProposedAction]:
    """Approved actions of an unfinished step that may have been performed; none if none were begun.

    That an approver was asked about them once more, or has decided them, does not
    change what was done before that.
    """
    approval = step.approval
    if approval is None:
        return ()
    asked = approval.kind == APPROVAL_KIND_OUTCOME_UNKNOWN
    return approval.actions if step.performing or asked else ()


def attempted_before(step: StepState, attempt: int) -> bool:
    """Whether the approved actions of ``step`` may have been performed before ``attempt``.

    By an earlier owner of the run, or before an approver was asked about them once more.
    """
    approval = step.approval
    if not step.performing or approval is None:
        return False
    return attempt > step.performed_from or approval.kind == APPROVAL_KIND_OUTCOME_UNKNOWN


def says_unknown(result: AgentResult) -> bool:
    """Whether the agent itself does not know if it performed an approved action."""
    reported = any(performed.outcome_unknown for performed in result.performed_actions)
    return result.status == FAILED and (
        reported or result.error.type == AgentErrorType.OUTCOME_UNKNOWN
    )


def leaves_unknown(status: AgentExecutionStatus, *, lost: bool) -> bool:
    """Whether it is unknown what became of approved actions, however the last attempt failed.

    Args:
        status: Of the last attempt's result.
        lost: Whether an attempt may have performed them without reporting it.
    """
    return lost and status == FAILED


def left_unknown(step: StepState, why: str) -> AgentResult:
    """The result of a step whose actions stay of unknown outcome.

    Args:
        step: The step, with :func:`uncertain_actions`.
        why: Why it ends, in a sentence.
    """
    actions = uncertain_actions(step)
    text = f"{why} It is not known whether this was done: {', '.join(tool_names(actions))}."
    result = failed_result(step, AgentErrorType.OUTCOME_UNKNOWN, text)
    result.performed_actions.extend(
        PerformedAction(action=action, outcome_unknown=True) for action in actions
    )
    return result


def turned_down(step: StepState, now: datetime, *, tainted: bool) -> list[LogEvent]:
    """The end of a step whose actions were not allowed; ``tainted`` is what the step is."""
    approval = step.approval
    if approval is not None and approval.kind == APPROVAL_KIND_OUTCOME_UNKNOWN:
        result = left_unknown(step, "It was not done again.")
    else:
        result = not_allowed(step)
    result.tainted = tainted
    # Nothing was consumed since the request, and that is known.
    result.usage.SetInParent()
    return ended(step, result, now)
