"""What an agent proposes and a person decides, in terms of a run's events. Pure (SPEC M)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid5

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_SKIPPED,
    SIDE_EFFECT_CLASS_NONE,
    ApprovalContext,
)
from bos.gateway.v1 import (
    APPROVAL_KIND_OUTCOME_UNKNOWN,
    APPROVAL_KIND_PROPOSED,
    APPROVAL_STATUS_APPROVED,
    APPROVAL_STATUS_DENIED,
    APPROVAL_STATUS_PENDING,
    APPROVAL_STATUS_TIMED_OUT,
    Approval,
)
from bos.runlog.v1 import ApprovalResolved, LogEvent, StepFinished, StepProgressed
from bos_gateway.failures import DENIED, HITL_TIMEOUT, error_trace, failed_result
from bos_gateway.unknown_outcomes import left_unknown
from bos_plans import is_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from bos.agent.v1 import AgentCard, AgentResult, ProposedAction
    from bos.gateway.v1 import ApprovalStatus
    from bos_gateway.state import RunState, StepState

MAX_APPROVAL_BYTES: Final = 128 * 1024
"""Largest request: a person has to read it, and it is stored with each of its events."""

_DENIED: Final = frozenset({APPROVAL_STATUS_DENIED, APPROVAL_STATUS_TIMED_OUT})
_MIN_TIMEOUT_S: Final = 1.0
_MAX_TIMEOUT_S: Final = 30 * 24 * 3600.0


def proposal_problem(card: AgentCard | None, step: StepState, result: AgentResult) -> str | None:
    """What makes proposed actions unfit to be asked about, in words; None if they are fine.

    A tool that the step may not use is not made usable by an approval (SPEC M-02, X-39).
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
    """How long a person may take to decide: of several actions the shortest time counts.

    Args:
        actions: What is proposed.
        by_tool: Seconds by name of the tool; these come before what the agent asks for.
        default_s: Seconds for all others (SPEC M-06).
    """

    def seconds(action: ProposedAction) -> float:
        if action.tool in by_tool:
            return by_tool[action.tool]
        asked = action.HasField("approval_timeout")
        return action.approval_timeout.ToNanoseconds() / 1e9 if asked else default_s

    shortest = min(seconds(action) for action in actions)
    return timedelta(seconds=max(_MIN_TIMEOUT_S, min(_MAX_TIMEOUT_S, shortest)))


def approval_for(
    state: RunState, step: StepState, result: AgentResult, now: datetime, timeout: timedelta
) -> Approval:
    """The request about what ``result`` proposes.

    Its id follows from run, step and count, so a proposal made again by another owner before it was
    stored is the same request.
    """
    name = f"{step.revision}/{step.step.step_id}/{step.proposals + 1}"
    approval = Approval(
        approval_id=str(uuid5(UUID(state.run_id), name)),
        run_id=state.run_id,
        step_id=step.step.step_id,
        agent_id=step.agent_id,
        agent_name=step.step.agent,
        task_description=result.task_description or step.step.task,
        actions=result.proposed_actions,
        status=APPROVAL_STATUS_PENDING,
        user_id=state.request.user_id,
        kind=APPROVAL_KIND_PROPOSED,
    )
    approval.create_time.FromDatetime(now)
    approval.expire_time.FromDatetime(now + timeout)
    return approval


def actions_of(step: StepState) -> Sequence[ProposedAction]:
    """The approved actions that the step is performing; none if it performs none."""
    return step.approval.actions if step.performing and step.approval is not None else ()


def approval_context(step: StepState) -> ApprovalContext | None:
    """What the agent is told of the decision: exactly the actions, or the instructions (M-10)."""
    approval = step.approval
    if approval is None or approval.status != APPROVAL_STATUS_APPROVED:
        return None
    return ApprovalContext(
        approval_id=approval.approval_id,
        approved_actions=actions_of(step),
        user_instructions=step.instructions,
        instruction_mode=step.instruction_mode,
    )


def denied_before(state: RunState, result: AgentResult) -> list[str]:
    """Tools of proposed actions that nobody allowed in an earlier attempt: not to be asked again.

    A revised plan does not plan denied work anew (SPEC C-23), but in other words it may come to it.
    """
    denied = {
        action.digest
        for attempt in state.past
        for step in attempt.kept
        if step.approval is not None and step.approval.status in _DENIED
        for action in step.approval.actions
    }
    return _tools(result, denied)


def done_before(state: RunState, result: AgentResult) -> list[str]:
    """Tools of proposed actions that were performed in an earlier attempt, or may have been.

    Who is asked about them in a new plan does not see that it would be once more.
    """
    begun = {
        action.digest
        for attempt in state.past
        for step in attempt.steps.values()
        for action in step.begun
        if action.side_effect != SIDE_EFFECT_CLASS_NONE
    }
    return _tools(result, begun)


def _tools(result: AgentResult, digests: AbstractSet[str]) -> list[str]:
    return sorted({a.tool for a in result.proposed_actions if a.digest in digests})


def turned_down(step: StepState, now: datetime) -> list[LogEvent]:
    """The end of a step whose actions nobody allowed (SPEC M-11, M-12)."""
    approval = step.approval
    if approval is not None and approval.kind == APPROVAL_KIND_OUTCOME_UNKNOWN:
        return _end(step, left_unknown(step, "It was not done again."), now)
    tools = sorted({action.tool for action in approval.actions}) if approval else []
    listed = ", ".join(tools)
    if approval is not None and approval.status == APPROVAL_STATUS_TIMED_OUT:
        reason, text = HITL_TIMEOUT, f"Nobody decided in time, so this was not done: {listed}."
    else:
        reason, text = DENIED, f"The approval was denied, so this was not done: {listed}."
    result = failed_result(step, reason, text, AGENT_EXECUTION_STATUS_SKIPPED)
    if approval is not None:
        result.task_description = approval.task_description
    result.partial_data.fields["reason"].string_value = reason
    result.partial_data.fields["tools"].list_value.SetInParent()
    for tool in tools:
        result.partial_data.fields["tools"].list_value.values.add(string_value=tool)
    return _end(step, result, now)


def _end(step: StepState, result: AgentResult, now: datetime) -> list[LogEvent]:
    step_id = step.step.step_id
    # Nothing was consumed since the request, and that is known.
    result.usage.SetInParent()
    trace = error_trace(step.step.agent, result.error.type, result.error.message, now)
    progressed = StepProgressed(revision=step.revision, step_id=step_id, events=[trace])
    finished = StepFinished(
        revision=step.revision, step_id=step_id, result=result, attempts=step.attempt
    )
    return [LogEvent(step_progressed=progressed), LogEvent(step_finished=finished)]


def closed(state: RunState, now: datetime, status: ApprovalStatus) -> list[LogEvent]:
    """The end of all requests that nobody has decided, with the run: cancelled or expired."""
    found = []
    for step in state.steps.values():
        if step.awaits and step.approval is not None:
            approval = resolved(step.approval, status, now)
            found.append(LogEvent(approval_resolved=ApprovalResolved(approval=approval)))
    return found


def resolved(
    approval: Approval, status: ApprovalStatus, now: datetime, instructions: str = ""
) -> Approval:
    """The request in its final state."""
    final = Approval()
    final.CopyFrom(approval)
    final.status = status
    final.user_instructions = instructions
    final.respond_time.FromDatetime(now)
    return final
