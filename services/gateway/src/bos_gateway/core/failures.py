"""Failed results that the gateway itself writes, and which failures may be retried. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime

from bos.agent.v1 import (
    SIDE_EFFECT_CLASS_IDEMPOTENT,
    SIDE_EFFECT_CLASS_NONE,
    AgentCard,
    AgentExecutionStatus,
    AgentResult,
    ProposedAction,
    SideEffectClass,
)
from bos.common.v1 import (
    TRACE_EVENT_TYPE_ERROR,
    TRACE_EVENT_TYPE_MESSAGE,
    AgentError,
    TraceEvent,
)
from bos.planner.v1 import Step
from bos.runlog.v1 import LogEvent, StepFinished, StepProgressed
from bos_errors import AgentErrorType
from bos_gateway.core.run_state import FAILED, StepState
from bos_plans import NOT_DONE, step_outcome

NEUTRAL = "Something went wrong inside the service. The failure has been logged."

# Failures of a model's endpoint: it is down, too slow, admits no more calls or refuses the key. By
# type, and by reason for those that a service reports in an error of another type. The maker of
# the call has repeated it as often as that was worth it.
_MODEL_TYPES = frozenset(
    {
        AgentErrorType.MODEL_UNAVAILABLE,
        AgentErrorType.MODEL_RATE_LIMITED,
        AgentErrorType.MODEL_NOT_CONFIGURED,
    }
)
_MODEL_REASONS = frozenset(
    {
        *("MODEL_UNAVAILABLE", "MODEL_TIMEOUT", "MODEL_CIRCUIT_OPEN", "MODEL_REPLY_FOREIGN"),
        *("MODEL_LOADING", "MODEL_RATE_LIMITED", "MODEL_NOT_CONFIGURED", "MODEL_KEY_REJECTED"),
        *("MODEL_NOT_FOUND", "MODEL_IDENTITY_MISSING", "MODEL_IDENTITY_UNAVAILABLE"),
    }
)
_REASON = "reason"

_READS = frozenset({SIDE_EFFECT_CLASS_NONE})
_HARMLESS = _READS | {SIDE_EFFECT_CLASS_IDEMPOTENT}


def failed_result(
    step: StepState, error_type: str, message: str, status: AgentExecutionStatus = FAILED
) -> AgentResult:
    """A failed or skipped result written by the gateway, in place of the agent's."""
    result = AgentResult(
        agent_id=step.agent_id,
        agent_name=step.step.agent,
        status=status,
        error=AgentError(type=error_type, message=message),
        task_description=step.sub_task.task if step.sub_task else step.step.task,
        depends_on=sorted(step.needs),
    )
    result.outcome = step_outcome(result)
    return result


def ended(step: StepState, result: AgentResult, now: datetime) -> list[LogEvent]:
    """End a step with a result written by the gateway, with its trace event."""
    step_id, error = step.step.step_id, result.error
    trace = error_trace(step.step.agent, error.type, error.message, now)
    if result.outcome in NOT_DONE:  # which is no failure
        trace.type = TRACE_EVENT_TYPE_MESSAGE
    progressed = StepProgressed(revision=step.revision, step_id=step_id, events=[trace])
    finished = StepFinished(
        revision=step.revision, step_id=step_id, result=result, attempts=step.attempt
    )
    return [LogEvent(step_progressed=progressed), LogEvent(step_finished=finished)]


def reason_of(error: AgentError) -> str:
    """The stable reason of a service's error inside an agent's failure; empty if none."""
    return error.details[_REASON].string_value if _REASON in error.details else ""


def is_model_failure(error: AgentError) -> bool:
    """Whether a model's endpoint failed, so that neither a repetition nor another plan helps.

    Either would ask the same endpoint the same thing: more load on one that is down, and one that
    is slow would do all its work once more.
    """
    return error.type in _MODEL_TYPES or reason_of(error) in _MODEL_REASONS


def credentials_lost(keys: Sequence[str]) -> str:
    """The message to a user whose credentials did not survive their gateway."""
    return (
        f"The service was interrupted, and the credentials given with this question are gone: "
        f"{', '.join(keys)}. Ask again, with context.{keys[0]} set."
    )


def error_trace(agent: str, error_type: str, message: str, now: datetime) -> TraceEvent:
    """The trace event of a failure."""
    event = TraceEvent(type=TRACE_EVENT_TYPE_ERROR, agent=agent, message=message, create_time=now)
    event.data["type"].string_value = error_type
    return event


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt at a step that failed."""

    transient: bool
    """Another one may end better."""
    unsent: bool = False
    """It has certainly not reached the agent, or was turned away before the agent began."""
    away: bool = False
    """The agent, or a service behind it, could not be reached or broke off."""


def may_attempt_again(
    failed: FailedAttempt,
    *,
    approved: bool,
    repeatable: bool,
    retries_left: int,
    waited_for: bool = False,
) -> bool:
    """Whether a step is attempted again, as long as there is time for it.

    What was approved is attempted until the run's time is over, wherever that cannot double
    it; all else as often as the agent's card says.

    Args:
        failed: The attempt.
        approved: Whether approved actions are being performed.
        repeatable: Whether sending them again cannot double an effect; see :func:`may_repeat`.
        retries_left: Attempts that the card still allows.
        waited_for: Whether what is away still has time to come back.
    """
    if not failed.transient:
        return False
    if approved:
        return repeatable or failed.unsent
    return repeatable and (retries_left > 0 or waited_for)


def may_repeat(
    card: AgentCard | None, step: Step, performing: Iterable[ProposedAction] = ()
) -> bool:
    """Whether another attempt at the step cannot repeat an effect of an earlier one."""
    return not _could_double(card, step, performing, _HARMLESS)


def may_have_acted(card: AgentCard | None, step: Step, begun: Iterable[ProposedAction]) -> bool:
    """Whether replanning the work of this dispatched step could repeat an effect.

    Stricter than :func:`may_repeat`: a new plan has other keys, so repetitions are not recognised.
    """
    return _could_double(card, step, begun, _READS)


def has_effects(actions: Iterable[ProposedAction]) -> bool:
    """Whether any of these actions changes something."""
    return any(action.side_effect not in _READS for action in actions)


def acts(card: AgentCard | None, step: Step) -> bool:
    """Whether the step may have side effects, by itself or after an approval."""
    return card is None or any(
        tool.requires_approval or tool.side_effect not in _READS
        for tool in card.tools
        if (tool.name in step.tools if step.tools else not tool.requires_approval)
    )


def _could_double(
    card: AgentCard | None,
    step: Step,
    approved: Iterable[ProposedAction],
    harmless: AbstractSet[SideEffectClass],
) -> bool:
    """Whether the step's tools, or the approved actions, have effects other than ``harmless``.

    Tools that need approval do not act without one, so of these only the actions count.
    """
    unprotected = card is None or any(
        tool.side_effect not in harmless and not tool.requires_approval
        for tool in card.tools
        if not step.tools or tool.name in step.tools
    )
    return unprotected or any(action.side_effect not in harmless for action in approved)
