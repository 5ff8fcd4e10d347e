"""Proposed actions and the requests about them, in terms of a run's events. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import NAMESPACE_OID, uuid5

from bos.agent.v1 import (
    SIDE_EFFECT_CLASS_NONE,
    AgentCard,
    AgentResult,
    ApprovalContext,
    ProposedAction,
)
from bos.common.v1 import Value
from bos.gateway import v1 as gateway
from bos.gateway.v1 import Approval, Approvers
from bos.runlog.v1 import ApprovalResolved, LogEvent
from bos_errors import AgentErrorType
from bos_gateway.core.failures import failed_result
from bos_gateway.core.run_state import SKIPPED, RunState, StepState
from bos_gateway.core.shown.escapes import visible
from bos_gateway.core.shown.origins import origins_of
from bos_plans import is_duration

MAX_APPROVAL_BYTES: Final = 128 * 1024
"""Largest request: an approver has to read it, and it is stored with each of its events."""

_DENIED: Final = (gateway.APPROVAL_STATUS_DENIED, gateway.APPROVAL_STATUS_TIMED_OUT)
_MIN_TIMEOUT_S: Final = 1.0
_MAX_TIMEOUT_S: Final = 30 * 24 * 3600.0
_MAX_NAMED: Final = 5
_MAX_NAME_CHARS: Final = 200


def proposal_problem(card: AgentCard | None, step: StepState, result: AgentResult) -> str | None:
    """Problem of proposed actions that cannot be decided, as text; None if they can.

    A tool that the step may not use is not made usable by an approval.
    """
    actions = result.proposed_actions
    if not actions:
        return "it waits for approval of nothing"
    if len({action.action_id for action in actions}) < len(actions):
        return "two of its proposed actions have one id"
    if not all(action.digest for action in actions):
        return "one of its proposed actions has no digest"
    known = {tool.name for tool in card.tools} if card else set()
    allowed = set(step.step.tools) & known if step.step.tools else known
    foreign = sorted({action.tool for action in actions} - allowed)
    if foreign:
        return f"it proposes to use tools that its step may not use: {', '.join(foreign)}"
    return None


def drop_impossible_timeouts(result: AgentResult) -> list[str]:
    """Drop approval time-outs that JSON of a duration cannot say, in place; what was dropped."""
    actions = [*result.proposed_actions, *(each.action for each in result.performed_actions)]
    impossible = [action for action in actions if not is_duration(action.approval_timeout)]
    for action in impossible:
        action.ClearField("approval_timeout")
    return ["approval_timeout"] if impossible else []


def proposal_timeout(
    actions: Iterable[ProposedAction], by_tool: Mapping[str, float], default_s: float
) -> timedelta:
    """Time-out of an approval request: the shortest of its actions.

    Args:
        actions: What is proposed.
        by_tool: Seconds by name of the tool; these come before what the agent asks for.
        default_s: Seconds for all others.
    """

    def seconds(action: ProposedAction) -> float:
        if action.tool in by_tool:
            return by_tool[action.tool]
        asked = action.HasField("approval_timeout")
        return action.approval_timeout.ToNanoseconds() / 1e9 if asked else default_s

    shortest = min(seconds(action) for action in actions)
    return timedelta(seconds=max(_MIN_TIMEOUT_S, min(_MAX_TIMEOUT_S, shortest)))


def approval_for(
    state: RunState,
    step: StepState,
    result: AgentResult,
    now: datetime,
    timeout: timedelta,
    approvers: Approvers | None = None,
) -> Approval:
    """The approval request for what ``result`` proposes."""
    task = result.task_description or step.step.task
    kind = gateway.APPROVAL_KIND_PROPOSED
    actions = result.proposed_actions
    asked = approval_request(state, step, now, timeout, task, actions, kind, approvers)
    if any(action.tainted for action in actions):
        asked.origins.extend(origins_of(state, step, result))
    return asked


def approval_request(
    state: RunState,
    step: StepState,
    now: datetime,
    timeout: timedelta,
    text: str,
    actions: Iterable[ProposedAction],
    kind: gateway.ApprovalKind,
    approvers: Approvers | None,
) -> Approval:
    """An approval request.

    Its id follows from run, step and count, so a request made again by another owner before it was
    stored is the same one.
    """
    name = f"{state.run_id}/{step.revision}/{step.step.step_id}/{step.proposals + 1}"
    return Approval(
        approval_id=str(uuid5(NAMESPACE_OID, name)),
        run_id=state.run_id,
        step_id=step.step.step_id,
        agent_id=step.agent_id,
        agent_name=step.step.agent,
        task_description=text,
        actions=actions,
        status=gateway.APPROVAL_STATUS_PENDING,
        user_id=state.request.user_id,
        kind=kind,
        approvers=approvers,
        create_time=now,
        expire_time=now + timeout,
    )


def actions_of(step: StepState) -> Sequence[ProposedAction]:
    """The approved actions that the step is performing; none if it performs none."""
    return step.approval.actions if step.performing and step.approval is not None else ()


def approval_context(step: StepState) -> ApprovalContext | None:
    """The decision as sent to the agent: the exact actions, or the instructions."""
    approval = step.approval
    if approval is None or approval.status != gateway.APPROVAL_STATUS_APPROVED:
        return None
    return ApprovalContext(
        approval_id=approval.approval_id,
        approved_actions=actions_of(step),
        user_instructions=step.instructions,
        instruction_mode=step.instruction_mode,
    )


def denied_before(state: RunState, result: AgentResult) -> list[str]:
    """Tools of proposed actions that an earlier attempt was denied; they are not asked again.

    A revised plan does not plan denied work anew, but in other words it may come to it.
    """
    steps = [step for attempt in state.past for step in attempt.kept]
    approvals = [step.approval for step in steps if step.approval is not None]
    return _again(result, (a for each in approvals if each.status in _DENIED for a in each.actions))


def done_before(state: RunState, result: AgentResult) -> list[str]:
    """Tools of proposed actions that were performed in an earlier attempt, or may have been.

    Who is asked about them in a new plan does not see that it would be once more.
    """
    steps = [step for attempt in state.past for step in attempt.steps.values()]
    begun = (action for step in steps for action in step.begun)
    return _again(result, (a for a in begun if a.side_effect != SIDE_EFFECT_CLASS_NONE))


def _again(result: AgentResult, before: Iterable[ProposedAction]) -> list[str]:
    digests = {action.digest for action in before}
    return tool_names(action for action in result.proposed_actions if action.digest in digests)


def not_allowed(step: StepState) -> AgentResult:
    """The result of a step whose proposed actions were denied, or not decided in time."""
    approval = step.approval or Approval()
    tools = tool_names(approval.actions)
    if approval.status == gateway.APPROVAL_STATUS_TIMED_OUT:
        reason, why = AgentErrorType.HITL_TIMEOUT, "It was not decided in time"
    else:
        by = {"": "", approval.user_id: " by you"}.get(approval.decided_by, " by another approver")
        reason, why = AgentErrorType.DENIED_BY_USER, f"The approval was denied{by}"
    text = f"{why}, so this was not done: {action_names(approval.actions)}."
    result = failed_result(step, reason, text, SKIPPED)
    result.task_description = approval.task_description
    fields = result.partial_data.fields
    fields["reason"].string_value = reason
    fields["tools"].list_value.values.extend(Value(string_value=tool) for tool in tools)
    return result


def closed(state: RunState, now: datetime, status: gateway.ApprovalStatus) -> list[LogEvent]:
    """The end of all undecided requests, with the run: cancelled or expired."""
    return [
        LogEvent(approval_resolved=ApprovalResolved(approval=resolved(step.approval, status, now)))
        for step in state.steps.values()
        if step.awaits and step.approval is not None
    ]


def resolved(
    approval: Approval,
    status: gateway.ApprovalStatus,
    now: datetime,
    instructions: str = "",
    decided_by: str = "",
) -> Approval:
    """The request in its final state."""
    final = Approval()
    final.CopyFrom(approval)
    final.status = status
    final.user_instructions = instructions
    final.decided_by = decided_by
    final.respond_time.FromDatetime(now)
    return final


def action_names(actions: Iterable[ProposedAction]) -> str:
    """What actions would do, for their user: their summaries, on one line and within bounds."""
    named = list(dict.fromkeys(_one_line(action.summary or action.tool) for action in actions))
    more = f" and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
    return "; ".join(named[:_MAX_NAMED]) + more


def _one_line(text: str) -> str:
    line = visible(" ".join(text.split())).rstrip(".")
    return line if len(line) <= _MAX_NAME_CHARS else f"{line[: _MAX_NAME_CHARS - 1]}…"


def tool_names(actions: Iterable[ProposedAction]) -> list[str]:
    """The tools of actions, each once."""
    return sorted({action.tool for action in actions})
