"""Asking a person what is to become of approved actions that may have been performed or not. Pure.

Whoever performed them is gone, or did not answer, and nobody can tell. What was approved is asked
about once more, the same actions with the same digests: an approval has them done again, anything
else leaves them as they are, and the step says that its outcome is unknown. Only what somebody was
asked about before is asked about again, so nobody is in a run whose client cannot be asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import NAMESPACE_OID, uuid5

from bos.agent.v1 import AGENT_EXECUTION_STATUS_FAILED, PerformedAction
from bos.gateway.v1 import (
    APPROVAL_KIND_OUTCOME_UNKNOWN,
    APPROVAL_STATUS_PENDING,
    Approval,
)
from bos.runlog.v1 import ApprovalRequested
from bos_gateway.failures import OUTCOME_UNKNOWN, failed_result
from bos_plans import MAX_TASK_CHARS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from bos.agent.v1 import AgentResult, ProposedAction
    from bos_gateway.state import RunState, StepState

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

    Its id follows from run, step and count, as with every other request.

    Args:
        state: The run.
        step: The step.
        now: When it is asked (UTC).
        known: What is known, in a sentence for a person.
    """
    former = step.approval
    if not step.performing or former is None:
        return None
    name = f"{state.run_id}/{step.revision}/{step.step.step_id}/{step.proposals + 1}"
    task = step.sub_task.task if step.sub_task is not None else step.step.task
    approval = Approval(
        approval_id=str(uuid5(NAMESPACE_OID, name)),
        run_id=former.run_id,
        step_id=former.step_id,
        agent_id=former.agent_id,
        agent_name=former.agent_name,
        task_description=_ASKS.format(known=known[:_MAX_KNOWN_CHARS], task=task[:MAX_TASK_CHARS]),
        actions=former.actions,
        status=APPROVAL_STATUS_PENDING,
        user_id=former.user_id,
        kind=APPROVAL_KIND_OUTCOME_UNKNOWN,
    )
    waits = former.expire_time.ToNanoseconds() - former.create_time.ToNanoseconds()
    approval.create_time.FromDatetime(now)
    approval.expire_time.FromNanoseconds(approval.create_time.ToNanoseconds() + waits)
    return ApprovalRequested(revision=step.revision, approval=approval)


def uncertain_actions(step: StepState) -> Sequence[ProposedAction]:
    """Approved actions of an unfinished step that may have been performed; none if none were begun.

    That a person was asked about them once more, or has said what is to become of them, does not
    change what was done before that.
    """
    approval = step.approval
    if approval is None:
        return ()
    asked = approval.kind == APPROVAL_KIND_OUTCOME_UNKNOWN
    return approval.actions if step.performing or asked else ()


def left_unknown(step: StepState, why: str) -> AgentResult:
    """The result of a step of whose actions nobody will find out whether they were done.

    Args:
        step: The step, with :func:`uncertain_actions`.
        why: Why it ends, in a sentence.
    """
    actions = uncertain_actions(step)
    tools = ", ".join(sorted({action.tool for action in actions}))
    text = f"{why} It is not known whether this was done: {tools}."
    result = failed_result(step, OUTCOME_UNKNOWN, text, AGENT_EXECUTION_STATUS_FAILED)
    result.performed_actions.extend(
        PerformedAction(action=action, outcome_unknown=True) for action in actions
    )
    return result
