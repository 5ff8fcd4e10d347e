"""What a run needs next. Pure: state and time in, commands out; no I/O, no memory of its own.

The commands are the *whole* set of work that should be under way, not a list of changes. The
orchestrator starts what is missing and stops what is no longer wanted, so a replica that adopts a
run does by the same rule what the previous owner would have done next.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_AWAITING_APPROVAL,
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    AGENT_EXECUTION_STATUS_RUNNING,
    AGENT_EXECUTION_STATUS_SKIPPED,
    AgentExecutionStatus,
    ApprovalContext,
)
from bos.common.v1 import AgentError
from bos.gateway.v1 import (
    APPROVAL_STATUS_CANCELLED,
    APPROVAL_STATUS_EXPIRED,
)
from bos.runlog.v1 import (
    EffectIntended,
    LogEvent,
    PlanFailed,
    RevisionStarted,
    RunFinished,
    RunReleased,
    StepDispatched,
    StepFinished,
    StepProgressed,
    SubTask,
)
from bos_gateway.budget import (
    StepBudget,
    for_classifying,
    for_composing,
    for_planning,
    turns_left,
)
from bos_gateway.failures import (
    BUDGET_EXHAUSTED,
    CANCELLED,
    DEADLINE_EXCEEDED,
    NOT_RUN,
    OUTCOME_UNKNOWN,
    REFERENCE_UNRESOLVED,
    RESULT_TOO_LARGE,
    TURNS_EXHAUSTED,
    error_trace,
    failed_result,
    may_repeat,
)
from bos_gateway.proposals import actions_of, approval_context, closed, turned_down
from bos_gateway.response import clarification_response, explained_response
from bos_gateway.results import room_for_inputs
from bos_gateway.revision import is_uncertain, may_revise, mendable, waits_for_revision
from bos_gateway.state import WAITING_FOR_APPROVAL
from bos_gateway.unknown_outcomes import asked_again, left_unknown, uncertain_actions
from bos_plans import InputTooLarge, References, ReferenceUnresolved

if TYPE_CHECKING:
    from bos.gateway.v1 import ApprovalStatus
    from bos_gateway.state import RunState, StepState

# Steps stop this long before the run must end, so that an answer can still be composed.
COMPOSE_SHARE = 0.2
# Agents end by themselves at the steps' deadline; deciding waits a little for their partial data.
DEADLINE_GRACE = timedelta(seconds=1)
# Steps of larger inputs are resolved one per decision, so that none takes the event loop for long.
_LARGE_INPUT_BYTES = 64 * 1024
_INTERRUPTED = "The service was interrupted while this step ran; its action may have taken effect."

_CUT_OFF = "The time for this run was over while this step ran; its action may have taken effect."


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Ask the planner."""

    revision: int
    token_budget: int | None = None
    """What it may consume; None for no bound."""


@dataclass(frozen=True, slots=True)
class RunStep:
    """Have an agent run a step."""

    revision: int
    step_id: str
    sub_task: SubTask
    """What to send: the same message for every attempt, also after an adoption."""
    attempt: int
    """The attempt whose dispatch is already in the log."""
    reserved_tokens: int = 0
    """What all attempts from this one on may consume; 0 if the run has no budget."""
    approval: ApprovalContext | None = None
    """What a person decided about it: actions to perform, or instructions."""


@dataclass(frozen=True, slots=True)
class Compose:
    """Have the answer composed."""

    token_budget: int | None = None
    """What that may consume; None for no bound."""


@dataclass(frozen=True, slots=True)
class Record:
    """Append events; nothing else needs to happen."""

    events: tuple[LogEvent, ...]


@dataclass(frozen=True, slots=True)
class Classify:
    """Find out how a person's instructions relate to the task of a step."""

    revision: int
    step_id: str
    approval_id: str
    token_budget: int | None = None
    """What that may consume; None for no bound."""


Command = MakePlan | RunStep | Classify | Compose | Record


def decide(state: RunState, now: datetime) -> list[Command]:
    """Everything that should be under way for the run at ``now`` (UTC).

    Record commands come alone: they change the state, so deciding starts over after them.
    """
    if state.finished:
        return []
    if state.cancel_reason is not None:
        text = f"The run was cancelled{': ' + state.cancel_reason if state.cancel_reason else '.'}"
        requests = _close(state, now, APPROVAL_STATUS_CANCELLED)
        return [Record((*requests, *_finish(state, now, CANCELLED, text).events))]
    if state.plan_failure is not None:
        error = state.plan_failure
        return [_finish(state, now, error.type, error.message)]
    if state.plan is None:
        if now >= run_deadline(state):
            return [_finish(state, now, DEADLINE_EXCEEDED, "The time for this run is over.")]
        return [MakePlan(state.revision, for_planning(state))]
    if state.replanning is not None:
        if now >= steps_deadline(state, now) + DEADLINE_GRACE:
            return [_unrevised(state, now)]
        return [MakePlan(state.replanning, for_planning(state))]
    if state.clarification is not None:
        return [_clarify(state, now)]
    record, running = _steps(state, now)
    if record.events:
        return [record]
    under_way: list[Command] = [*running, *_classifying(state)]
    if under_way:
        return under_way
    if _asks_user(state):
        return [_clarify(state, now)]
    if state.waiting_since is not None:
        released = RunReleased(reason=WAITING_FOR_APPROVAL)
        return [Record((_at(now, LogEvent(run_released=released)),))]
    if revised := _revise(state, now):
        return [revised]
    return [Compose(for_composing(state))]


def next_wake(state: RunState) -> datetime | None:
    """When deciding could give another answer without any event; None if never."""
    if state.finished or state.accepted is None:
        return None
    if state.plan is None:
        return run_deadline(state)
    if state.waiting_since is not None:
        return None
    if state.replanning is not None or any(not step.settled for step in state.steps.values()):
        return steps_deadline(state) + DEADLINE_GRACE
    return None


def run_deadline(state: RunState, now: datetime | None = None) -> datetime:
    """When the run must have ended (UTC). The time that people take to decide does not count.

    Args:
        state: The run.
        now: The time up to which it counts that somebody has yet to decide.
    """
    deadline = state.request.deadline.ToDatetime(tzinfo=UTC) + state.waited
    if now is not None and state.waiting_since is not None:
        deadline += max(timedelta(), now - state.waiting_since)
    return deadline


def steps_deadline(state: RunState, now: datetime | None = None) -> datetime:
    """When steps must have ended, so that there is time left to compose (UTC)."""
    whole = state.request.deadline.ToDatetime(tzinfo=UTC) - state.accept_time
    reserve = min(state.request.settings.compose_timeout.ToTimedelta(), whole * COMPOSE_SHARE)
    return run_deadline(state, now) - reserve


def _steps(state: RunState, now: datetime) -> tuple[Record, list[RunStep]]:
    """What is to be recorded about steps, and the steps that are under way.

    A step is under way once its dispatch is in the log, and not before: so neither a limit nor an
    adopter can lose sight of an agent that is already at work.
    """
    events: list[LogEvent] = []
    running: list[RunStep] = []
    large = False
    late = now >= steps_deadline(state, now) + DEADLINE_GRACE
    budget = StepBudget(state)
    asks, failed = _asks_user(state), _to_mend(state, now)
    slots = max(1, state.request.settings.max_concurrency) - sum(
        step.status == AGENT_EXECUTION_STATUS_RUNNING for step in state.steps.values()
    )
    left = turns_left(state)
    turns = len(state.steps) if left is None else left
    for step_id in state.order:
        step = state.steps[step_id]
        if step.settled or step.awaits:
            continue
        if step.refused:
            events += [_at(now, event) for event in turned_down(step, now)]
        elif late:
            events += _too_late(state, step, now)
        elif step.interrupted and step.sub_task is not None:
            events += _interrupted(state, step, step.sub_task, now, None if asks else budget)
        elif asks and step.status != AGENT_EXECUTION_STATUS_RUNNING:
            events += _not_run(step, now)
        elif step.status == AGENT_EXECUTION_STATUS_AWAITING_APPROVAL:
            decided = _decided(step, now, budget, slots)
            events += decided
            if decided and decided[-1].HasField("step_dispatched"):
                slots -= 1
        elif step.sub_task is not None:
            running.append(
                RunStep(
                    step.revision,
                    step_id,
                    step.sub_task,
                    step.attempt,
                    step.reserved_tokens,
                    approval_context(step),
                )
            )
        elif turns <= 0:
            text = f"Not run: the limit of {state.request.request.max_turns} turns was reached."
            skipped = AGENT_EXECUTION_STATUS_SKIPPED
            events += _unsuccessful(step, now, TURNS_EXHAUSTED, text, skipped)
        elif slots > 0 and _ready(state, step) and not waits_for_revision(state, step, failed):
            if large or not (budget.enough or budget.exhausted):
                continue
            try:
                sub_task = _sub_task(state, step)
            except ReferenceUnresolved as error:
                events += _unsuccessful(step, now, REFERENCE_UNRESOLVED, str(error))
                continue
            except InputTooLarge as error:
                events += _unsuccessful(step, now, RESULT_TOO_LARGE, str(error))
                large = True
                continue
            large = sub_task.ByteSize() > _LARGE_INPUT_BYTES
            dispatched = _dispatch(step, now, sub_task, budget)
            events += dispatched
            if dispatched and dispatched[-1].HasField("step_dispatched"):
                slots -= 1
                turns -= 1
    return Record(tuple(events)), running


def _to_mend(state: RunState, now: datetime) -> frozenset[str]:
    """Steps that failed and that another plan may be made for, once all others have ended."""
    if not any(step.status == AGENT_EXECUTION_STATUS_FAILED for step in state.steps.values()):
        return frozenset()
    return mendable(state) if _may_revise(state, now) else frozenset()


def _revise(state: RunState, now: datetime) -> Record | None:
    """The start of a revision, if the steps call for one and it may be (SPEC C-21, B-22)."""
    failed = _to_mend(state, now)
    if not failed and not (is_uncertain(state) and _may_revise(state, now)):
        return None
    started = RevisionStarted(
        revision=state.revision + 1,
        failed_step_ids=[step_id for step_id in state.steps if step_id in failed],
    )
    return Record((_at(now, LogEvent(revision_started=started)),))


def _may_revise(state: RunState, now: datetime) -> bool:
    return may_revise(state, steps_deadline(state, now) - now)


def _unrevised(state: RunState, now: datetime) -> Record:
    """The end of a revision that took too long; what there is can still be told."""
    error = AgentError(type=DEADLINE_EXCEEDED, message="There was no time left for another plan.")
    failed = PlanFailed(revision=state.replanning, error=error)
    return Record((_at(now, LogEvent(plan_failed=failed)),))


def _classifying(state: RunState) -> list[Classify]:
    return [
        Classify(step.revision, step_id, step.approval.approval_id, for_classifying(state))
        for step_id, step in state.steps.items()
        if step.unclassified and not step.settled and step.approval is not None
    ]


def _interrupted(
    state: RunState, step: StepState, sub_task: SubTask, now: datetime, budget: StepBudget | None
) -> list[LogEvent]:
    """What becomes of a step that was under way when the run changed owner.

    It is sent again if that can double nothing; without a ``budget`` it just ends.
    """
    if may_repeat(state.card(step.step.agent), step.step, actions_of(step)):
        return _dispatch(step, now, sub_task, budget) if budget else _not_run(step, now)
    if budget and (asked := asked_again(state, step, now, _INTERRUPTED)) is not None:
        return [_at(now, LogEvent(approval_requested=asked))]
    return _unsuccessful(step, now, OUTCOME_UNKNOWN, _INTERRUPTED)


def _too_late(state: RunState, step: StepState, now: datetime) -> list[LogEvent]:
    """The end of a step for which there is no time; nor is there to do anything again."""
    card = state.card(step.step.agent)
    sent = step.status == AGENT_EXECUTION_STATUS_RUNNING
    if sent and not may_repeat(card, step.step, actions_of(step)):
        text = _INTERRUPTED if step.interrupted else _CUT_OFF
        return _unsuccessful(step, now, OUTCOME_UNKNOWN, text)
    text = "The time for this run was over before the step ended."
    return _unsuccessful(step, now, DEADLINE_EXCEEDED, text)


def _decided(step: StepState, now: datetime, budget: StepBudget, slots: int) -> list[LogEvent]:
    """What follows from an approval (SPEC M-10).

    Approved actions are performed; that this is about to happen is in the log first. Instructions
    lead to another proposal instead.
    """
    approval = step.approval
    assert approval is not None
    if slots <= 0 or step.unclassified or step.sub_task is None:
        return []
    dispatched = _dispatch(step, now, step.sub_task, budget)
    going = bool(dispatched) and dispatched[-1].HasField("step_dispatched")
    if not going or approval.user_instructions:
        return dispatched
    intended = EffectIntended(
        revision=step.revision,
        step_id=step.step.step_id,
        approval_id=approval.approval_id,
        digests=[action.digest for action in approval.actions],
    )
    return [_at(now, LogEvent(effect_intended=intended)), *dispatched]


def _dispatch(
    step: StepState, now: datetime, sub_task: SubTask, budget: StepBudget
) -> list[LogEvent]:
    """The dispatch; nothing while the tokens it needs may come back, the step's end if not."""
    reserved = budget.reserve()
    if reserved is None:
        if not budget.exhausted:
            return []
        text = (
            f"Not run: {budget.available} of the {budget.limit} tokens of this run are left for "
            f"steps, and one takes at least {budget.least}. Raise BOS_GATEWAY_MAX_RUN_TOKENS "
            "or the request's max_tokens, or ask for less."
        )
        skipped = AGENT_EXECUTION_STATUS_SKIPPED
        return _unsuccessful(step, now, BUDGET_EXHAUSTED, text, skipped)
    dispatched = StepDispatched(
        revision=step.revision,
        step_id=step.step.step_id,
        agent_id=step.agent_id,
        sub_task=sub_task,
        attempt=step.attempt + 1,
        reserved_tokens=reserved,
    )
    return [_at(now, LogEvent(step_dispatched=dispatched))]


def _ready(state: RunState, step: StepState) -> bool:
    """Whether everything ``step`` waits for has ended, well or not."""
    return all(
        state.steps[needed].settled if needed in state.steps else needed in state.outputs
        for needed in step.needs
    )


def _sub_task(state: RunState, step: StepState) -> SubTask:
    """The step's task message with references resolved.

    Raises:
        ReferenceUnresolved: something that it refers to is not there.
        InputTooLarge: there is too much of it.
    """
    plan_step = step.step
    references = References(state.outputs, room_for_inputs(state))
    inputs = {name: references.value(v) for name, v in plan_step.sub_task_input.items()}
    return SubTask(
        sub_task_id=step_key(state.run_id, step.revision, plan_step.step_id),
        parent_task_id=state.run_id,
        assigned_agent_role=plan_step.agent,
        tool_name=plan_step.tool_name,
        sub_task_input=inputs,
        task=references.text(plan_step.task),
        api_keys_config_ref=_key_profile(state, plan_step.agent),
    )


def _key_profile(state: RunState, agent: str) -> str:
    """The key profile that ``agent`` must use in this run (SPEC N-07); empty for its own choice."""
    profiles = state.request.settings.api_keys_config_refs
    return profiles.get(agent, profiles.get("*", ""))


def step_key(run_id: str, revision: int, step_id: str) -> str:
    """The key under which every attempt at a step is known."""
    return f"{run_id}/{revision}/{step_id}"


def _asks_user(state: RunState) -> bool:
    return any(
        step.status == AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION for step in state.steps.values()
    )


def _unsuccessful(
    step: StepState,
    now: datetime,
    error_type: str,
    message: str,
    status: AgentExecutionStatus = AGENT_EXECUTION_STATUS_FAILED,
) -> list[LogEvent]:
    """A trace event and the result of a step that ends here (SPEC Q-07, Q-09).

    Whatever ends it: of approved actions that were begun it says that their outcome is unknown.
    """
    step_id = step.step.step_id
    if uncertain_actions(step):
        result = left_unknown(step, message)
    else:
        result = failed_result(step, error_type, message, status)
    trace = error_trace(step.step.agent, result.error.type, result.error.message, now)
    progressed = StepProgressed(revision=step.revision, step_id=step_id, events=[trace])
    finished = StepFinished(
        revision=step.revision, step_id=step_id, result=result, attempts=step.attempt
    )
    return [
        _at(now, LogEvent(step_progressed=progressed)),
        _at(now, LogEvent(step_finished=finished)),
    ]


def _not_run(step: StepState, now: datetime) -> list[LogEvent]:
    text = "Not run: another step needs an answer from you first."
    return _unsuccessful(step, now, NOT_RUN, text, AGENT_EXECUTION_STATUS_SKIPPED)


def _finish(state: RunState, now: datetime, error_type: str, message: str) -> Record:
    response = explained_response(state, now, AgentError(type=error_type, message=message))
    return Record((_at(now, LogEvent(run_finished=RunFinished(response=response))),))


def _clarify(state: RunState, now: datetime) -> Record:
    """The end with questions; requests that nobody has decided end with the run."""
    requests = _close(state, now, APPROVAL_STATUS_EXPIRED)
    response = clarification_response(state, now)
    return Record((*requests, _at(now, LogEvent(run_finished=RunFinished(response=response)))))


def _close(state: RunState, now: datetime, status: ApprovalStatus) -> tuple[LogEvent, ...]:
    return tuple(_at(now, event) for event in closed(state, now, status))


def _at(now: datetime, event: LogEvent) -> LogEvent:
    event.create_time.FromDatetime(now)
    return event
