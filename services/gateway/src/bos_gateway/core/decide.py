"""Decides what a run needs next. Pure: state and time in, commands out; no I/O.

The commands are the *whole* set of work that should be under way, not a list of changes. The
orchestrator starts what is missing and stops what is no longer wanted, so a replica that adopts a
run does by the same rule what the previous owner would have done next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from bos.agent.v1 import AgentExecutionStatus, ApprovalContext
from bos.common.v1 import AgentError, Outcome
from bos.gateway.v1 import APPROVAL_STATUS_CANCELLED, APPROVAL_STATUS_EXPIRED, OrchestratorResponse
from bos.runlog import v1 as runlog
from bos.runlog.v1 import LogEvent, SubTask
from bos_errors import AgentErrorType
from bos_gateway.core import failures, proposals, unknown_outcomes
from bos_gateway.core.budget import (
    StepBudget,
    for_classifying,
    for_composing,
    for_planning,
    turns_left,
)
from bos_gateway.core.fold import WAITING_FOR_APPROVAL
from bos_gateway.core.response import clarification_response, explained_response
from bos_gateway.core.result_limits import room_for_inputs
from bos_gateway.core.revision import is_uncertain, may_revise, mendable, waits_for_revision
from bos_gateway.core.run_state import (
    AWAITING_APPROVAL,
    FAILED,
    NEEDS_CLARIFICATION,
    SKIPPED,
    RunState,
    StepState,
)
from bos_gateway.core.taint import is_tainted
from bos_plans import (
    InputTooLarge,
    References,
    ReferenceUnresolved,
    readable_task,
    references_of,
)

# Steps stop this long before the run must end, so that an answer can still be composed.
COMPOSE_SHARE = 0.2
# Agents end by themselves at the steps' deadline; deciding waits a little for their partial data.
DEADLINE_GRACE = timedelta(seconds=1)
# Steps of larger inputs are resolved one per decision, so that none takes the event loop for long.
_LARGE_INPUT_BYTES = 64 * 1024
_INTERRUPTED = "The service was interrupted while this step ran; its action may have taken effect."
_CUT_OFF = "The time for this run was over while this step ran; its action may have taken effect."

_ABSENT: Final[Mapping[Outcome, str]] = {
    Outcome.OUTCOME_DENIED: "was denied",
    Outcome.OUTCOME_EXPIRED: "was not decided in time",
    Outcome.OUTCOME_SKIPPED: "was not run",
    Outcome.OUTCOME_NOT_IN_SOURCE: "found that its source holds nothing of the kind",
}


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Ask the planner."""

    revision: int
    token_budget: int | None = None
    """What it may consume; None for no bound."""


@dataclass(frozen=True, slots=True)
class RunStep:
    """Run a step by its agent."""

    revision: int
    step_id: str
    sub_task: SubTask
    """What to send: the same message for every attempt, also after an adoption."""
    attempt: int
    """The attempt whose dispatch is already in the log."""
    reserved_tokens: int = 0
    """What all attempts from this one on may consume; 0 if the run has no budget."""
    approval: ApprovalContext | None = None
    """The decision about it: actions to perform, or instructions."""


@dataclass(frozen=True, slots=True)
class Compose:
    """Compose the answer."""

    token_budget: int | None = None
    """What that may consume; None for no bound."""


@dataclass(frozen=True, slots=True)
class Record:
    """Append events; nothing else needs to happen."""

    events: tuple[LogEvent, ...]


@dataclass(frozen=True, slots=True)
class Classify:
    """Classify how an approver's instructions relate to the task of a step."""

    revision: int
    step_id: str
    approval_id: str
    token_budget: int | None = None
    """What that may consume; None for no bound."""


Command = MakePlan | RunStep | Classify | Compose | Record


def decide(state: RunState, now: datetime) -> list[Command]:
    """All work that should be under way for the run at ``now`` (UTC).

    Record commands come alone: they change the state, so deciding starts over after them.
    """
    if state.finished:
        return []
    if state.cancel_reason is not None:
        text = f"The run was cancelled{': ' + state.cancel_reason if state.cancel_reason else '.'}"
        requests = proposals.closed(state, now, APPROVAL_STATUS_CANCELLED)
        return _finish(
            now, explained_response(state, now, AgentErrorType.CANCELLED, text), *requests
        )
    if (error := state.plan_failure) is not None:
        return _finish(now, explained_response(state, now, error.type, error.message))
    if state.plan is None:
        if now < run_deadline(state):
            return [MakePlan(state.revision, for_planning(state))]
        text = "The time for this run is over."
        return _finish(now, explained_response(state, now, AgentErrorType.DEADLINE_EXCEEDED, text))
    if state.replanning is not None:
        if now < steps_deadline(state, now) + DEADLINE_GRACE:
            return [MakePlan(state.replanning, for_planning(state))]
        # The results there are can still be composed.
        text = "There was no time left for another plan."
        error = AgentError(type=AgentErrorType.DEADLINE_EXCEEDED, message=text)
        failed = runlog.PlanFailed(revision=state.replanning, error=error)
        return _record(now, LogEvent(plan_failed=failed))
    if state.clarification is not None:
        return _clarify(state, now)
    steps = _Steps(state, now)
    if steps.events:
        return _record(now, *steps.events)
    if under_way := [*steps.running, *_classifying(state)]:
        return under_way
    if steps.asks:
        return _clarify(state, now)
    if state.waiting_since is not None:
        released = runlog.RunReleased(reason=WAITING_FOR_APPROVAL)
        return _record(now, LogEvent(run_released=released))
    if steps.may_revise and (steps.to_mend or is_uncertain(state)):
        started = runlog.RevisionStarted(
            revision=state.revision + 1,
            failed_step_ids=[step_id for step_id in state.steps if step_id in steps.to_mend],
        )
        return _record(now, LogEvent(revision_started=started))
    return [Compose(for_composing(state))]


def next_wake(state: RunState) -> datetime | None:
    """Next time at which :func:`decide` may change without an event; None if never."""
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
    """Deadline of the run (UTC), without the time that approvals take.

    Args:
        state: The run.
        now: The time up to which pending approvals count.
    """
    deadline = state.request.deadline.ToDatetime(tzinfo=UTC) + state.waited
    if now is not None and state.waiting_since is not None:
        deadline += max(timedelta(), now - state.waiting_since)
    return deadline


def steps_deadline(state: RunState, now: datetime | None = None) -> datetime:
    """Deadline of steps, so that there is time left to compose (UTC)."""
    whole = state.request.deadline.ToDatetime(tzinfo=UTC) - state.accept_time
    reserve = min(state.request.settings.compose_timeout.ToTimedelta(), whole * COMPOSE_SHARE)
    return run_deadline(state, now) - reserve


class _Steps:
    """What is to be recorded about steps, and the steps that are under way.

    A step is under way once its dispatch is in the log, and not before: so neither a limit nor an
    adopter can lose sight of an agent that is already at work.
    """

    def __init__(self, state: RunState, now: datetime) -> None:
        steps, deadline = state.steps.values(), steps_deadline(state, now)
        self.asks = any(step.status == NEEDS_CLARIFICATION for step in steps)
        """A step has questions to the user, so no other begins."""
        self.may_revise = may_revise(state, deadline - now)
        self.to_mend = mendable(state) if self.may_revise else frozenset[str]()
        """Steps that failed and that another plan may be made for, once all others have ended."""
        self._state, self._now, self._budget = state, now, StepBudget(state)
        self._late = now >= deadline + DEADLINE_GRACE
        slots = max(1, state.request.settings.max_concurrency)
        self._slots = slots - sum(step.running for step in steps)
        left = turns_left(state)
        self._turns = len(steps) if left is None else left
        self._large = False
        self.events: list[LogEvent] = []
        self.running: list[Command] = []
        for step_id in state.order:
            step = state.steps[step_id]
            if not (step.settled or step.awaits):
                self._go_on(step)

    def _go_on(self, step: StepState) -> None:
        if step.refused:
            tainted = is_tainted(self._state, step)
            self.events += unknown_outcomes.turned_down(step, self._now, tainted=tainted)
        elif self._late:
            self._end_late(step)
        elif step.interrupted and step.sub_task is not None:
            self._take_up(step, step.sub_task)
        elif self.asks and not step.running:
            self._end_not_run(step)
        elif step.status == AWAITING_APPROVAL:
            self._follow_approval(step)
        elif step.sub_task is not None:
            step_id, approval = step.step.step_id, proposals.approval_context(step)
            tokens = step.reserved_tokens
            self.running.append(
                RunStep(step.revision, step_id, step.sub_task, step.attempt, tokens, approval)
            )
        elif self._turns <= 0:
            turns = self._state.request.request.max_turns
            text = f"Not run: the limit of {turns} turns was reached."
            self._end(step, AgentErrorType.MAX_TURNS_REACHED, text, SKIPPED)
        elif self._slots > 0 and not self._large:
            self._start(step)

    def _start(self, step: StepState) -> None:
        """Dispatch a step, once everything that it waits for has ended, well or not."""
        state = self._state
        ready = all(
            state.steps[needed].settled if needed in state.steps else needed in state.outputs
            for needed in step.needs
        )
        if not ready or waits_for_revision(state, step, self.to_mend):
            return
        if not (self._budget.enough or self._budget.exhausted):
            return
        if absent := _absent_input(state, step):
            self._end(step, AgentErrorType.NOT_RUN, absent, SKIPPED)
            return
        try:
            sub_task = _sub_task(state, step)
        except ReferenceUnresolved as error:
            self._end(step, AgentErrorType.REFERENCE_UNRESOLVED, str(error))
        except InputTooLarge as error:
            self._end(step, AgentErrorType.RESULT_TOO_LARGE, str(error))
            self._large = True
        else:
            self._large = sub_task.ByteSize() > _LARGE_INPUT_BYTES
            self._dispatch(step, sub_task)

    def _take_up(self, step: StepState, sub_task: SubTask) -> None:
        """Resume a step that was under way when the run changed owner.

        It is sent again if that can double nothing.
        """
        if self._may_repeat(step):
            if self.asks:
                self._end_not_run(step)
            else:
                self._dispatch(step, sub_task)
            return
        asked = None
        if not self.asks:
            asked = unknown_outcomes.asked_again(self._state, step, self._now, _INTERRUPTED)
        if asked is not None:
            self.events.append(LogEvent(approval_requested=asked))
        else:
            self._end(step, AgentErrorType.OUTCOME_UNKNOWN, _INTERRUPTED)

    def _follow_approval(self, step: StepState) -> None:
        """Perform approved actions; that this is about to happen is in the log first.

        Instructions lead to another proposal instead.
        """
        approval = step.approval
        assert approval is not None
        if self._slots <= 0 or step.unclassified or step.sub_task is None:
            return
        intended = runlog.EffectIntended(
            revision=step.revision,
            step_id=step.step.step_id,
            approval_id=approval.approval_id,
            digests=[action.digest for action in approval.actions],
        )
        first = [] if approval.user_instructions else [LogEvent(effect_intended=intended)]
        self._dispatch(step, step.sub_task, *first)

    def _dispatch(self, step: StepState, sub_task: SubTask, *first: LogEvent) -> None:
        """Send the step; nothing while the tokens it needs may come back, its end if not."""
        budget = self._budget
        reserved = budget.reserve()
        if reserved is not None:
            dispatched = runlog.StepDispatched(
                revision=step.revision,
                step_id=step.step.step_id,
                agent_id=step.agent_id,
                sub_task=sub_task,
                attempt=step.attempt + 1,
                reserved_tokens=reserved,
            )
            self.events += [*first, LogEvent(step_dispatched=dispatched)]
            if not step.running:  # what was under way has its slot
                self._slots -= 1
            if step.sub_task is None:  # what was sent before has had its turn
                self._turns -= 1
        elif budget.exhausted:
            text = (
                f"Not run: {budget.available} of the {budget.limit} tokens of this run are left "
                f"for steps, and one takes at least {budget.least}. Raise "
                "BOS_GATEWAY_MAX_RUN_TOKENS or the request's max_tokens, or ask for less."
            )
            self._end(step, AgentErrorType.BUDGET_EXHAUSTED, text, SKIPPED)

    def _may_repeat(self, step: StepState) -> bool:
        card = self._state.card(step.step.agent)
        return failures.may_repeat(card, step.step, proposals.actions_of(step))

    def _end_late(self, step: StepState) -> None:
        """End a step for which there is no time; nor is there to do anything again."""
        if step.running and not self._may_repeat(step):
            text = _INTERRUPTED if step.interrupted else _CUT_OFF
            self._end(step, AgentErrorType.OUTCOME_UNKNOWN, text)
        else:
            text = "The time for this run was over before the step ended."
            self._end(step, AgentErrorType.DEADLINE_EXCEEDED, text)

    def _end_not_run(self, step: StepState) -> None:
        text = "Not run: another step needs an answer from you first."
        self._end(step, AgentErrorType.NOT_RUN, text, SKIPPED)

    def _end(
        self, step: StepState, error_type: str, text: str, status: AgentExecutionStatus = FAILED
    ) -> None:
        """End a step here; of approved actions that were begun it says their outcome is unknown."""
        if unknown_outcomes.uncertain_actions(step):
            result = unknown_outcomes.left_unknown(step, text)
        else:
            result = failures.failed_result(step, error_type, text, status)
        # It was not run, but its dependents depend on what it was to be made of.
        result.tainted = is_tainted(self._state, step)
        self.events += failures.ended(step, result, self._now)


def _absent_input(state: RunState, step: StepState) -> str:
    """Why a step cannot run that is made of what others did not do or find; empty if it can."""
    needed = references_of(step.step)
    for other in state.result_steps:
        if other.step.step_id in needed and (why := _ABSENT.get(other.outcome)):
            task, lacks = readable_task(step.step.task), readable_task(other.step.task)
            return f'Not done: {task}. It needs the result of "{lacks}", which {why}.'
    return ""


def _sub_task(state: RunState, step: StepState) -> SubTask:
    """The step's task message with references resolved.

    Raises:
        ReferenceUnresolved: something that it refers to is not there.
        InputTooLarge: there is too much of it.
    """
    references = References(state.outputs, room_for_inputs(state))
    inputs = {name: references.value(v) for name, v in step.step.sub_task_input.items()}
    profiles = state.request.settings.api_keys_config_refs
    return SubTask(
        # Under this key every attempt at the step is known.
        sub_task_id=f"{state.run_id}/{step.revision}/{step.step.step_id}",
        parent_task_id=state.run_id,
        assigned_agent_role=step.step.agent,
        tool_name=step.step.tool_name,
        sub_task_input=inputs,
        task=references.text(step.step.task),
        # Empty leaves the agent its own choice.
        api_keys_config_ref=profiles.get(step.step.agent, profiles.get("*", "")),
    )


def _classifying(state: RunState) -> list[Command]:
    return [
        Classify(step.revision, step_id, step.approval.approval_id, for_classifying(state))
        for step_id, step in state.steps.items()
        if step.unclassified and not step.settled and step.approval is not None
    ]


def _clarify(state: RunState, now: datetime) -> list[Command]:
    """The end with questions."""
    requests = proposals.closed(state, now, APPROVAL_STATUS_EXPIRED)
    return _finish(now, clarification_response(state, now), *requests)


def _finish(now: datetime, response: OrchestratorResponse, *requests: LogEvent) -> list[Command]:
    """The run's end, and with it that of requests that are not decided yet."""
    return _record(now, *requests, LogEvent(run_finished=runlog.RunFinished(response=response)))


def _record(now: datetime, *events: LogEvent) -> list[Command]:
    for event in events:
        event.create_time.FromDatetime(now)
    return [Record(events)]
