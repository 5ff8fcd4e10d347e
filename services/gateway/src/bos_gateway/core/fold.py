"""Folds a run's log into its state. Pure.

``fold(events)`` is the only way to a state: the owner applies each event as it hands it to the
log's writer, an adopter applies all that were stored at once, and both hold the same state. What a
state holds is in ``run_state``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Any

from bos.agent.v1 import INSTRUCTION_MODE_ENHANCE, INSTRUCTION_MODE_OVERRIDE
from bos.common.v1 import AgentError, Usage
from bos.gateway import v1 as gateway
from bos.runlog import v1 as runlog
from bos_errors import AgentErrorType
from bos_gateway.core.budget import for_classifying, for_planning, held_beside_steps
from bos_gateway.core.run_state import (
    AWAITING_APPROVAL,
    RUNNING,
    Attempt,
    BrokenLog,
    RunState,
    StepState,
    UnknownEvent,
)
from bos_plans import dependencies, execution_order

# What the fold adds up to, and how it fails, is imported from here as well.
__all__ = ["BrokenLog", "RunState", "UnknownEvent"]

_MAX_NANOS = 2**62
# Counts of Usage and where their sums end, so that those can be added up and stored again.
_COUNTS = {
    field.name: 2**31 - 1 if field.type == field.TYPE_INT32 else 2**53 - 1
    for field in Usage.DESCRIPTOR.fields
    if field.type in (field.TYPE_INT32, field.TYPE_INT64)
}
WAITING_FOR_APPROVAL = "waiting_for_approval"
"""Reason of RunReleased: the run waits for an approval."""
_STATUS_AFTER = {
    "run_accepted": gateway.RUN_STATUS_ACCEPTED,
    "planned": gateway.RUN_STATUS_PLANNED,
    "step_dispatched": gateway.RUN_STATUS_EXECUTING,
    "step_finished": gateway.RUN_STATUS_EXECUTING,
    "approval_resolved": gateway.RUN_STATUS_EXECUTING,
    "answer_started": gateway.RUN_STATUS_COMPOSING,
}


def fold(run_id: str, events: Iterable[runlog.LogEvent]) -> RunState:
    """The state after ``events``, which are the whole log from the first event on.

    Raises:
        UnknownEvent: an event's kind is not known to this version.
        BrokenLog: the events contradict each other.
    """
    state = RunState(run_id)
    for event in events:
        apply(state, event)
    return state


def apply(state: RunState, event: runlog.LogEvent) -> None:
    """Apply one more event to ``state``.

    Raises:
        UnknownEvent: the event's kind is not known to this version.
        BrokenLog: the event cannot follow what came before.
    """
    kind = event.WhichOneof("event")
    if kind not in _APPLY:
        raise UnknownEvent(f"run {state.run_id}, event {state.last_sequence + 1}")
    if state.finished:
        raise BrokenLog(f"run {state.run_id} has an event {kind} after its end")
    if (kind == "run_accepted") != (state.accepted is None):
        raise BrokenLog(f"run {state.run_id} has its event run_accepted in the wrong place")
    state.last_sequence += 1
    state.update_time = event.create_time.ToDatetime(tzinfo=UTC)
    state.status = status_after(state.status, event)
    _APPLY[kind](state, getattr(event, kind))


def admissible(
    state: RunState, events: Iterable[runlog.LogEvent]
) -> tuple[list[runlog.LogEvent], list[str]]:
    """The events that may follow the log of ``state``, in order, up to the first end.

    After a request to cancel no event counts: of cancel and end the first one wins. What the table
    ``_ADMISSIBLE`` refuses is left out: decisions that were made already, plans that came too late,
    and results of steps that have ended or of a plan that was revised.

    Returns:
        The events, and the ids of approvals whose decision was left out.

    Raises:
        UnknownEvent: one of them, an input from a newer replica, means nothing to this version.
    """
    unsettled = _Unsettled.of(state)
    found: list[runlog.LogEvent] = []
    dropped: list[str] = []
    for event in events:
        kind = event.WhichOneof("event")
        if kind is None:
            raise UnknownEvent(f"run {state.run_id}, an input")
        body = getattr(event, kind)
        if kind == "cancel_requested":
            return [*found, event] if state.cancel_reason is None else found, dropped
        if kind == "run_finished":
            return [*found, event], dropped
        if kind not in _ADMISSIBLE or _ADMISSIBLE[kind](unsettled, body):
            found.append(event)
        elif kind == "approval_resolved":
            dropped.append(body.approval.approval_id)
    return found, dropped


@dataclass(slots=True)
class _Unsettled:
    """What a run still waits for, given its state and the events of a batch so far."""

    state: RunState
    ended_steps: set[str]
    undecided: set[str]
    """Ids of undecided approvals."""
    planning: int | None

    @classmethod
    def of(cls, state: RunState) -> _Unsettled:
        ended = {step_id for step_id, step in state.steps.items() if step.settled}
        approvals = (step.approval for step in state.steps.values() if step.awaits)
        undecided = {approval.approval_id for approval in approvals if approval is not None}
        return cls(state, ended, undecided, state.planning)

    def takes_plan(self, body: runlog.Planned | runlog.PlanFailed) -> bool:
        """The first outcome of the revision that is being planned."""
        counts = body.revision == self.planning
        self.planning = None if counts else self.planning
        return counts

    def takes_decision(self, body: runlog.ApprovalResolved) -> bool:
        """The first decision about a pending approval."""
        counts = body.approval.approval_id in self.undecided
        self.undecided.discard(body.approval.approval_id)
        return counts

    def takes_class(self, body: runlog.InstructionsClassified) -> bool:
        """The class of instructions that are not classified yet."""
        step = self.state.steps.get(body.step_id)
        return step is not None and step.unclassified

    def takes_request(self, body: runlog.ApprovalRequested) -> bool:
        """A proposal of a step of the plan in force that has not ended."""
        return self._is_open(body.approval.step_id, body.revision)

    def takes_progress(self, body: runlog.StepDispatched | runlog.StepProgressed) -> bool:
        """Progress of an unfinished step of the plan in force."""
        return self._is_open(body.step_id, body.revision)

    def takes_result(self, body: runlog.StepFinished) -> bool:
        """The first result of a step of the plan in force."""
        counts = self._is_open(body.step_id, body.revision)
        if counts:
            self.ended_steps.add(body.step_id)
        return counts

    def _is_open(self, step_id: str, revision: int) -> bool:
        return step_id not in self.ended_steps and revision == self.state.revision


# Which events of a kind may follow; those of all other kinds are the owner's own, and always may.
_ADMISSIBLE: dict[str, Callable[[_Unsettled, Any], bool]] = {
    "planned": _Unsettled.takes_plan,
    "plan_failed": _Unsettled.takes_plan,
    "step_dispatched": _Unsettled.takes_progress,
    "step_progressed": _Unsettled.takes_progress,
    "step_finished": _Unsettled.takes_result,
    "approval_requested": _Unsettled.takes_request,
    "approval_resolved": _Unsettled.takes_decision,
    "instructions_classified": _Unsettled.takes_class,
}


def status_after(status: gateway.RunStatus, event: runlog.LogEvent) -> gateway.RunStatus:
    """The run's status once ``event`` has happened."""
    if event.HasField("run_finished"):
        return event.run_finished.response.status
    if waits(event):
        return gateway.RUN_STATUS_WAITING_FOR_APPROVAL
    return _STATUS_AFTER.get(event.WhichOneof("event") or "", status)


def waits(event: runlog.LogEvent) -> bool:
    """Whether the run has no owner from this event on, until an approval is decided."""
    return event.run_released.reason == WAITING_FOR_APPROVAL


def _run_accepted(state: RunState, accepted: runlog.RunAccepted) -> None:
    state.accepted = accepted
    state.accept_time = state.update_time
    state.plan_trace += accepted.trace


def _planned(state: RunState, planned: runlog.Planned) -> None:
    if planned.revision != state.planning:
        raise BrokenLog(f"run {state.run_id} has a plan {planned.revision} that was not requested")
    revised = state.plan is not None
    state.replanning = None
    state.only_plan = planned.only_plan
    state.plan_trace += planned.trace
    add_usage(state.usage, planned.usage)
    _forfeit_steps(state)
    if planned.HasField("clarification"):
        state.clarification = planned.clarification
    if revised and not planned.plan.steps:
        state.revision_failure = AgentError(
            type=AgentErrorType.NO_NEW_PLAN, message="There is no other plan."
        )
        return
    if revised:
        _leave_attempt(state, planned)
    state.plan = planned.plan
    state.revision = planned.revision
    state.decision = planned.decision
    if not revised or planned.intent.intent:
        state.intent = planned.intent
    state.steps = {
        step.step_id: StepState(
            step,
            planned.revision,
            agent_id(step.agent, index, state.revision),
            frozenset(dependencies(step)),
        )
        for index, step in enumerate(planned.plan.steps)
    }
    state.order = execution_order(planned.plan)
    _note_waiting(state)


def _leave_attempt(state: RunState, planned: runlog.Planned) -> None:
    """Archive the plan in force: its results stay, its failures are kept for reports."""
    attempt = Attempt(state.revision, state.steps, state.mending)
    state.past.append(attempt)
    for step in attempt.replaced:
        state.outputs.pop(step.step.step_id, None)
    taken = {step.step.step_id for past in state.past for step in past.kept}
    if again := sorted(taken & {step.step_id for step in planned.plan.steps}):
        raise BrokenLog(f"run {state.run_id} plans step {again[0]} again, which has ended")


def _plan_failed(state: RunState, failed: runlog.PlanFailed) -> None:
    if failed.revision != state.planning:
        raise BrokenLog(
            f"run {state.run_id} fails to plan {failed.revision}, which was not requested"
        )
    if not failed.HasField("usage"):
        count_unreported(state, for_planning(state))
    state.plan_trace += failed.trace
    add_usage(state.usage, failed.usage)
    if state.plan is None:
        state.plan_failure = failed.error
    else:
        state.replanning, state.revision_failure = None, failed.error


def _revision_started(state: RunState, started: runlog.RevisionStarted) -> None:
    begun = state.plan is None or state.replanning is not None
    if begun or started.revision != state.revision + 1:
        raise BrokenLog(f"run {state.run_id} begins revision {started.revision} out of order")
    state.replanning = started.revision
    state.mending = frozenset(started.failed_step_ids)
    state.iterated = state.iterated or not started.failed_step_ids


def _step_dispatched(state: RunState, dispatched: runlog.StepDispatched) -> None:
    if (step := _step(state, dispatched.step_id, dispatched.revision)) is None:
        return
    if step.sub_task is None:
        state.turns += 1
        state.held_bytes += dispatched.sub_task.ByteSize()
    step.status = RUNNING
    step.attempt = dispatched.attempt
    step.sub_task = dispatched.sub_task
    step.interrupted = False
    step.reserved_tokens = dispatched.reserved_tokens


def _step_progressed(state: RunState, progressed: runlog.StepProgressed) -> None:
    if (step := _step(state, progressed.step_id, progressed.revision)) is not None:
        step.trace += progressed.events


def _step_finished(state: RunState, finished: runlog.StepFinished) -> None:
    if (step := _step(state, finished.step_id, finished.revision)) is None:
        return
    if step.settled:
        raise BrokenLog(f"run {state.run_id} settles step {finished.step_id} twice")
    step.result = finished.result
    step.status = finished.result.status
    step.attempt = finished.attempts
    state.outputs[finished.step_id] = finished.result
    state.held_bytes += finished.result.ByteSize()
    add_usage(state.usage, finished.result.usage)
    if not finished.result.HasField("usage"):
        # Ended by the gateway while an agent was at work: what that consumed will not be reported.
        count_unreported(state, step.reserved_tokens)
    step.reserved_tokens = 0
    if step.unclassified:  # and no call asks any more what its instructions mean
        count_unreported(state, for_classifying(state))
        step.unclassified = False


def _approval_requested(state: RunState, requested: runlog.ApprovalRequested) -> None:
    if (step := _step(state, requested.approval.step_id, requested.revision)) is None:
        return
    if step.settled or step.awaits:
        raise BrokenLog(f"run {state.run_id} asks twice about step {requested.approval.step_id}")
    step.status = AWAITING_APPROVAL
    step.approval = requested.approval
    step.proposals += 1
    step.tainted |= requested.result.tainted or any(a.tainted for a in step.approval.actions)
    step.performing = step.interrupted = False
    # The proposal is paid for; what comes after the decision is reserved anew.
    add_usage(state.usage, requested.result.usage)
    step.reserved_tokens = 0
    _note_waiting(state)


def _approval_resolved(state: RunState, event: runlog.ApprovalResolved) -> None:
    """Apply a decision; its subject is the request's, not the response's."""
    decided = event.approval
    for step in state.steps.values():
        if step.approval is None or step.approval.approval_id != decided.approval_id:
            continue
        if not step.awaits:
            raise BrokenLog(f"run {state.run_id} has two decisions about step {step.step.step_id}")
        approval = gateway.Approval()
        approval.CopyFrom(step.approval)
        approval.status = decided.status
        approval.user_instructions = decided.user_instructions
        approval.decided_by = decided.decided_by
        approval.respond_time.CopyFrom(decided.respond_time)
        step.approval = approval
        step.unclassified = bool(decided.user_instructions)
        _note_waiting(state)
        return


def _instructions_classified(state: RunState, classified: runlog.InstructionsClassified) -> None:
    """Instructions instead of the task also stand instead of earlier instructions."""
    add_usage(state.usage, classified.usage)
    step = _step(state, classified.step_id, classified.revision)
    if step is None or step.approval is None or not step.unclassified:
        return
    step.unclassified = False
    step.trace += classified.trace
    mode, instructions = classified.mode, step.approval.user_instructions
    if mode == INSTRUCTION_MODE_OVERRIDE or not step.instructions:
        step.instructions, step.instruction_mode = instructions, mode or INSTRUCTION_MODE_ENHANCE
    else:
        step.instructions += f"\n{instructions}"


def _effect_intended(state: RunState, intended: runlog.EffectIntended) -> None:
    if (step := _step(state, intended.step_id, intended.revision)) is not None:
        step.performing = True
        step.performed_from = step.attempt + 1
        step.begun += step.approval.actions if step.approval is not None else ()


def _note_waiting(state: RunState) -> None:
    """Stop the run's clock while it waits for an approval."""
    waiting = any(step.awaits for step in state.steps.values())
    if waiting and state.waiting_since is None:
        state.waiting_since = state.update_time
    elif not waiting and state.waiting_since is not None:
        state.waited += max(timedelta(), state.update_time - state.waiting_since)
        state.waiting_since = None


def _answer_started(state: RunState, started: runlog.AnswerStarted) -> None:
    state.answer_attempt = started.attempt
    count_unreported(state, state.answer_tokens)
    state.answer_tokens = started.reserved_tokens


def _run_finished(state: RunState, finished: runlog.RunFinished) -> None:
    state.response = finished.response


def _cancel_requested(state: RunState, requested: runlog.CancelRequested) -> None:
    if state.cancel_reason is None:
        state.cancel_reason = requested.reason


def _run_adopted(state: RunState, adopted: runlog.RunAdopted) -> None:
    """End what was under way with its owner; what it consumed will not be reported.

    Planning and classifying are taken to have begun: the log does not say.
    """
    state.released = False
    for step in state.steps.values():
        step.interrupted = step.running
    count_unreported(state, held_beside_steps(state))
    _forfeit_steps(state)
    state.answer_tokens = 0


def _forfeit_steps(state: RunState) -> None:
    """Count all that is held for steps as consumed."""
    for step in state.steps.values():
        count_unreported(state, step.reserved_tokens)
        step.reserved_tokens = 0


def _run_released(state: RunState, released: runlog.RunReleased) -> None:
    state.released = released.reason == WAITING_FOR_APPROVAL


_APPLY: dict[str, Callable[[RunState, Any], None]] = {
    "run_accepted": _run_accepted,
    "planned": _planned,
    "plan_failed": _plan_failed,
    "revision_started": _revision_started,
    "step_dispatched": _step_dispatched,
    "step_progressed": _step_progressed,
    "step_finished": _step_finished,
    "approval_requested": _approval_requested,
    "approval_resolved": _approval_resolved,
    "instructions_classified": _instructions_classified,
    "effect_intended": _effect_intended,
    "answer_started": _answer_started,
    "run_finished": _run_finished,
    "cancel_requested": _cancel_requested,
    "run_adopted": _run_adopted,
    "run_released": _run_released,
}


def _step(state: RunState, step_id: str, revision: int) -> StepState | None:
    """The step in force; None for a step of a plan that was since revised."""
    step = state.steps.get(step_id)
    if step is None and revision == state.revision:
        raise BrokenLog(f"run {state.run_id} has no step {step_id} in revision {revision}")
    return step if step is not None and step.revision == revision else None


def agent_id(agent: str, index: int, revision: int) -> str:
    """Instance id of the step at ``index``: unique in its plan, stable over retries."""
    return f"{agent}_{index}" if revision == 0 else f"{agent}_{revision}_{index}"


def add_usage(total: Usage, more: Usage) -> None:
    """Add ``more`` to ``total`` in place; sums saturate, and nothing is ever taken away.

    Wall-clock times add up as work, not as latency.
    """
    for name, most in _COUNTS.items():
        setattr(total, name, min(most, getattr(total, name) + max(0, getattr(more, name))))
    nanos = total.duration.ToNanoseconds() + max(0, more.duration.ToNanoseconds())
    total.duration.FromNanoseconds(min(nanos, _MAX_NANOS))
    total.models.extend(model for model in more.models if model not in total.models)


def count_unreported(state: RunState, tokens: int | None) -> None:
    """Count tokens that will not be reported any more as consumed."""
    add_usage(state.usage, Usage(unreported_tokens=tokens))
