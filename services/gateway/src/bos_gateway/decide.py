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
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    AGENT_EXECUTION_STATUS_PENDING,
    AGENT_EXECUTION_STATUS_RUNNING,
    AGENT_EXECUTION_STATUS_SKIPPED,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentExecutionStatus,
    AgentResult,
)
from bos.common.v1 import TRACE_EVENT_TYPE_ERROR, AgentError, TraceEvent
from bos.runlog.v1 import LogEvent, RunFinished, StepFinished, StepProgressed, SubTask
from bos_gateway.response import clarification_response, explained_response
from bos_plans import (
    ReferenceUnresolved,
    dependencies,
    execution_order,
    resolve_text,
    resolve_value,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_gateway.state import RunState, StepState

# Steps stop this long before the run must end, so that an answer can still be composed.
COMPOSE_SHARE = 0.2
# Agents end by themselves at the steps' deadline; deciding waits a little for their partial data.
DEADLINE_GRACE = timedelta(seconds=1)

REFERENCE_UNRESOLVED = "ReferenceUnresolved"
DEADLINE_EXCEEDED = "DeadlineExceeded"
TURNS_EXHAUSTED = "MaxTurnsReached"
CANCELLED = "Cancelled"


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Ask the planner."""

    revision: int


@dataclass(frozen=True, slots=True)
class RunStep:
    """Have an agent run a step."""

    revision: int
    step_id: str
    sub_task: SubTask
    """What to send: the same message for every attempt, also after an adoption."""


@dataclass(frozen=True, slots=True)
class Compose:
    """Have the answer composed."""


@dataclass(frozen=True, slots=True)
class Record:
    """Append events; nothing else needs to happen."""

    events: tuple[LogEvent, ...]


Command = MakePlan | RunStep | Compose | Record


def decide(state: RunState, now: datetime) -> list[Command]:
    """Everything that should be under way for the run at ``now`` (UTC).

    Record commands come alone: they change the state, so deciding starts over after them.
    """
    if state.finished:
        return []
    if state.cancel_reason is not None:
        text = f"The run was cancelled{': ' + state.cancel_reason if state.cancel_reason else '.'}"
        return [_finish(state, now, CANCELLED, text)]
    if state.plan_failure is not None:
        error = state.plan_failure.error
        return [_finish(state, now, error.type, error.message)]
    if state.plan is None:
        if now >= run_deadline(state):
            return [_finish(state, now, DEADLINE_EXCEEDED, "The time for this run is over.")]
        return [MakePlan(state.revision)]
    if state.clarification is not None:
        return [_clarify(state, now)]
    settled = _settle(state, now)
    if settled:
        return [Record(tuple(settled))]
    work = _runnable(state)
    if work:
        return list(work)
    if _asks_user(state):
        return [_clarify(state, now)]
    return [Compose()]


def next_wake(state: RunState) -> datetime | None:
    """When deciding could give another answer without any event; None if never."""
    if state.finished or state.accepted is None:
        return None
    if state.plan is None:
        return run_deadline(state)
    if any(not step.settled for step in state.steps.values()):
        return steps_deadline(state) + DEADLINE_GRACE
    return None


def run_deadline(state: RunState) -> datetime:
    """When the run must have ended (UTC)."""
    return state.request.deadline.ToDatetime(tzinfo=UTC)


def steps_deadline(state: RunState) -> datetime:
    """When steps must have ended, so that there is time left to compose (UTC)."""
    whole = run_deadline(state) - state.accept_time
    reserve = min(state.request.settings.compose_timeout.ToTimedelta(), whole * COMPOSE_SHARE)
    return run_deadline(state) - reserve


def _settle(state: RunState, now: datetime) -> list[LogEvent]:
    """Events for the steps that end without being run, or run no longer."""
    events: list[LogEvent] = []
    late = now >= steps_deadline(state) + DEADLINE_GRACE
    turns_left = state.request.request.max_turns - state.turns
    bounded = state.request.request.HasField("max_turns")
    for step_id in execution_order(state.plan) if state.plan else ():
        step = state.steps[step_id]
        if step.settled:
            continue
        if late:
            text = "The time for this run was over before the step ended."
            events += _unsuccessful(state, step, now, DEADLINE_EXCEEDED, text)
        elif step.status == AGENT_EXECUTION_STATUS_PENDING and bounded and turns_left <= 0:
            text = f"Not run: the limit of {state.request.request.max_turns} turns was reached."
            events += _unsuccessful(
                state, step, now, TURNS_EXHAUSTED, text, AGENT_EXECUTION_STATUS_SKIPPED
            )
        elif step.status == AGENT_EXECUTION_STATUS_PENDING and _ready(state, step):
            turns_left -= 1
            try:
                _sub_task(state, step)
            except ReferenceUnresolved as error:
                turns_left += 1
                events += _unsuccessful(state, step, now, REFERENCE_UNRESOLVED, str(error))
    return events


def _runnable(state: RunState) -> Sequence[Command]:
    """Steps under way and steps that may start, within the limit of concurrency."""
    running: list[Command] = []
    ready: list[StepState] = []
    for step_id in execution_order(state.plan) if state.plan else ():
        step = state.steps[step_id]
        if step.status == AGENT_EXECUTION_STATUS_RUNNING and step.sub_task is not None:
            running.append(RunStep(step.revision, step_id, step.sub_task))
        elif step.status == AGENT_EXECUTION_STATUS_PENDING and _ready(state, step):
            ready.append(step)
    free = max(1, state.request.settings.max_concurrency) - len(running)
    request = state.request.request
    if request.HasField("max_turns"):
        free = min(free, request.max_turns - state.turns)
    starting = [
        RunStep(step.revision, step.step.step_id, _sub_task(state, step))
        for step in ready[: max(0, free)]
    ]
    return [*running, *starting]


def _ready(state: RunState, step: StepState) -> bool:
    """Whether everything ``step`` waits for has ended, well or not."""
    return all(
        state.steps[needed].settled if needed in state.steps else needed in state.outputs
        for needed in dependencies(step.step)
    )


def _sub_task(state: RunState, step: StepState) -> SubTask:
    """The step's task message with references resolved (SPEC C-16, C-29).

    Raises:
        ReferenceUnresolved: SPEC C-17.
    """
    plan_step = step.step
    inputs = {k: resolve_value(v, state.outputs) for k, v in plan_step.sub_task_input.items()}
    return SubTask(
        sub_task_id=step_key(state.run_id, step.revision, plan_step.step_id),
        parent_task_id=state.run_id,
        assigned_agent_role=plan_step.agent,
        tool_name=plan_step.tool_name,
        sub_task_input=inputs,
        task=resolve_text(plan_step.task, state.outputs),
    )


def step_key(run_id: str, revision: int, step_id: str) -> str:
    """The key under which every attempt at a step is known."""
    return f"{run_id}/{revision}/{step_id}"


def _asks_user(state: RunState) -> bool:
    return any(
        step.status == AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION for step in state.steps.values()
    )


def _unsuccessful(
    state: RunState,
    step: StepState,
    now: datetime,
    error_type: str,
    message: str,
    status: AgentExecutionStatus = AGENT_EXECUTION_STATUS_FAILED,
) -> list[LogEvent]:
    """A trace event and the result of a step that ends here (SPEC Q-07, Q-09)."""
    step_id = step.step.step_id
    error = AgentError(type=error_type, message=message)
    result = AgentResult(
        agent_id=step.agent_id,
        agent_name=step.step.agent,
        status=status,
        error=error,
        task_description=step.sub_task.task if step.sub_task else step.step.task,
        depends_on=sorted(dependencies(step.step)),
    )
    trace = TraceEvent(type=TRACE_EVENT_TYPE_ERROR, agent=step.step.agent, message=message)
    trace.data["type"].string_value = error_type
    trace.create_time.FromDatetime(now)
    progressed = LogEvent(
        step_progressed=StepProgressed(revision=step.revision, step_id=step_id, events=[trace])
    )
    finished = LogEvent(
        step_finished=StepFinished(
            revision=step.revision, step_id=step_id, result=result, attempts=step.attempt
        )
    )
    return [_at(now, progressed), _at(now, finished)]


def _finish(state: RunState, now: datetime, error_type: str, message: str) -> Record:
    response = explained_response(state, now, AgentError(type=error_type, message=message))
    return Record((_at(now, LogEvent(run_finished=RunFinished(response=response))),))


def _clarify(state: RunState, now: datetime) -> Record:
    response = clarification_response(state, now)
    return Record((_at(now, LogEvent(run_finished=RunFinished(response=response))),))


def _at(now: datetime, event: LogEvent) -> LogEvent:
    event.create_time.FromDatetime(now)
    return event


def succeeded(step: StepState) -> bool:
    """Whether the step ended well."""
    return step.status == AGENT_EXECUTION_STATUS_SUCCEEDED
