"""Revision: whether another plan could fix a failure, and its constraints. Pure.

What an approver or a rule did not allow is never planned again, nor what may have acted already;
everything is judged by stable types and reasons, nothing by the text of a message.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from datetime import timedelta

from bos.common.v1 import AgentError, Outcome
from bos.planner.v1 import Plan
from bos_errors import AgentErrorType
from bos_gateway.core import failures
from bos_gateway.core.budget import enough_for_revision, steps_left, turns_left
from bos_gateway.core.run_state import FAILED, RunState, StepState
from bos_plans import references_of, repetitions

# Failures caused by an approver, a rule or a limit, or of unknown outcome.
_FINAL_TYPES = frozenset(
    {
        *(AgentErrorType.SANDBOX_VIOLATION, AgentErrorType.PERMISSION_DENIED),
        *(AgentErrorType.HTTP_REFUSED, AgentErrorType.MODEL_REFUSED),
        *(
            AgentErrorType.CLARIFICATION_LIMIT,
            AgentErrorType.BUDGET_EXHAUSTED,
            AgentErrorType.CANCELLED,
        ),
        *(AgentErrorType.CREDENTIAL_LOST, AgentErrorType.OUTCOME_UNKNOWN),
    }
)
# The same as reasons of the errors of services, inside an agent's failure.
_FINAL_REASONS = frozenset(
    {"MODEL_REFUSED", "HTTP_REFUSED", "PERMISSION_DENIED", "BUDGET_EXHAUSTED"}
)
# With these the agent has not even begun, so its tools have done nothing.
_NOT_BEGUN = (AgentErrorType.AGENT_UNKNOWN, AgentErrorType.REFERENCE_UNRESOLVED)
_VIOLATIONS = "violations"
"""Details of an AgentError: the rules that a query broke."""
_OF_A_MODEL = "model"

# Planning and a step of the new plan take this long at least, in short runs less.
_MIN_TIME = timedelta(seconds=5)
_MIN_SHARE = 0.1


def may_revise(state: RunState, left: timedelta) -> bool:
    """Whether the run's limits allow another plan.

    Args:
        state: The run.
        left: Time until steps must have ended.
    """
    if steps_left(state) <= 0 or state.revision >= state.request.settings.max_revisions:
        return False
    if state.only_plan or state.revision_failure is not None or state.answer_attempt:
        return False
    whole = state.request.deadline.ToNanoseconds() / 1e9 - state.accept_time.timestamp()
    return (
        turns_left(state) != 0
        and enough_for_revision(state)
        and left >= min(_MIN_TIME, timedelta(seconds=whole * _MIN_SHARE))
    )


def mendable(state: RunState) -> frozenset[str]:
    """Failed steps of the plan in force that another plan could fix."""
    found: set[str] = set()
    # Upstream first: a reference to a step that will never have output is so as well.
    for step_id in state.order:
        step = state.steps[step_id]
        if step.status == FAILED and _mendable(state, step, found):
            found.add(step_id)
    return frozenset(found)


def waits_for_revision(state: RunState, step: StepState, failed: AbstractSet[str]) -> bool:
    """Whether the step must not run yet: it acts, and something upstream of it ``failed``."""
    if not failed or not failures.acts(state.card(step.step.agent), step.step):
        return False
    upstream, found = list(step.needs), set[str]()
    while upstream:
        step_id = upstream.pop()
        if step_id in failed:
            return True
        if step_id in state.steps and step_id not in found:
            found.add(step_id)
            upstream += state.steps[step_id].needs
    return False


def is_uncertain(state: RunState) -> bool:
    """Whether the planner may be asked again because of thin results.

    A model's plan of low confidence of which something succeeded without yielding anything, or in
    part only; once in a run. A plan whose results are there is not doubted.
    """
    decision, plan = state.decision, state.plan
    if state.iterated or plan is None or plan.origin != _OF_A_MODEL:
        return False
    if decision is None or not decision.HasField("confidence"):
        return False
    doubted = decision.confidence < state.request.settings.confidence_threshold
    return doubted and any(map(_thin, state.steps.values()))


def revision_problems(state: RunState, plan: Plan) -> tuple[str, list[str]]:
    """Problems of a revised plan, beside those of any plan.

    Returns:
        The type of the failure and what is wrong, one sentence each; none if the plan is fine.
    """
    if not plan.steps:
        return AgentErrorType.NO_NEW_PLAN, ["There is no other plan."]
    failed = [state.steps[step_id].step for step_id in state.mending]
    if len(repetitions(plan.steps, failed)) == len(plan.steps):
        return AgentErrorType.NO_NEW_PLAN, ["The plan repeats what failed."]
    blocked = [step.step for step in blocked_steps(state)]
    done = [step.step for step in completed(state)]
    taken = {step.step_id for step in blocked}
    problems = [
        f'The id of step "{step.step_id}" is taken.' for step in plan.steps if step.step_id in taken
    ]
    for steps, what in ((blocked, "which stays undone"), (done, "which is done")):
        again = repetitions(plan.steps, steps)
        problems += [f'Step "{s}" repeats "{other}", {what}.' for s, other in again.items()]
    return "", problems


def completed(state: RunState) -> list[StepState]:
    """Steps of all attempts that succeeded: new steps refer to them and never repeat them."""
    return [step for step in state.result_steps if step.succeeded]


def blocked_steps(state: RunState) -> list[StepState]:
    """Steps of all attempts that ended without success and stay as they are."""
    return [
        step
        for step in state.result_steps
        if step.settled
        and not step.succeeded
        and not (step.revision == state.revision and step.step.step_id in state.mending)
    ]


def _mendable(state: RunState, step: StepState, found: AbstractSet[str]) -> bool:
    error = step.result.error if step.result is not None else None
    if error is None or _is_final(error):
        return False
    if error.type == AgentErrorType.REFERENCE_UNRESOLVED:
        sources = (state.steps[s] for s in references_of(step.step) if s in state.steps)
        return all(source.succeeded or source.step.step_id in found for source in sources)
    if step.sub_task is None or error.type in _NOT_BEGUN:
        return True
    return not failures.may_have_acted(state.card(step.step.agent), step.step, step.begun)


def _is_final(error: AgentError) -> bool:
    return (
        error.type in _FINAL_TYPES
        or failures.reason_of(error) in _FINAL_REASONS
        or failures.is_model_failure(error)
        or (_VIOLATIONS in error.details and bool(error.details[_VIOLATIONS].list_value.values))
    )


def _thin(step: StepState) -> bool:
    """Whether a success yielded nothing, or only a part."""
    result = step.result
    if result is None or not step.succeeded or step.outcome == Outcome.OUTCOME_NOT_IN_SOURCE:
        return False
    if result.partial_data.fields:
        return True
    if result.HasField("table"):
        return not result.table.rows
    return not (result.answer.strip() or result.data.fields)
