"""The planning effect: one call of the planner, its plan checked once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from bos.common.v1 import AgentError
from bos.planner.v1 import MakePlanRequest, MakePlanResponse
from bos.runlog.v1 import LogEvent, PlanFailed, Planned
from bos_chassis.errors import from_rpc_error
from bos_gateway.attempts import revision_context
from bos_gateway.budget import steps_left
from bos_gateway.continuing import question_of, questions_limit
from bos_gateway.decide import run_deadline, steps_deadline
from bos_gateway.effects import PLANNER
from bos_gateway.failures import (
    CLARIFICATION_LIMIT,
    INVALID_PLAN,
    NO_NEW_PLAN,
    STEPS_EXHAUSTED,
    error_trace,
)
from bos_gateway.reaching import answered
from bos_gateway.results import MAX_CLARIFICATION_BYTES, clamp_usage, shorten, sound_trace, unit
from bos_gateway.revision import completed, revision_problems
from bos_plans import OutOfBounds, extent, plan_problems

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from bos.agent.v1 import AgentCard
    from bos.gateway.v1 import AgentRequest
    from bos_gateway.decide import MakePlan
    from bos_gateway.effects import EffectContext

# Of each thing that a planner says beside its plan.
_MAX_BESIDE_BYTES = 32 * 1024


async def make_plan(run: EffectContext, command: MakePlan) -> None:
    """Ask the planner; ends in Planned or PlanFailed."""
    accepted = run.state.request
    settings, revision = accepted.settings, command.revision
    max_steps = steps_left(run.state)
    if max_steps <= 0:  # which in a request means no limit
        text = f"The limit of {settings.max_steps} steps over all plans was reached."
        await run.emit(_failed(run, revision, STEPS_EXHAUSTED, text, MakePlanResponse(usage={})))
        return
    timeout_s = min(settings.plan_timeout.ToNanoseconds() / 1e9, _left_s(run))
    request = plan_request(
        accepted.request,
        accepted.cards,
        fallback_agent=settings.fallback_agent,
        max_steps=max_steps,
    )
    if command.token_budget is not None:
        request.token_budget = command.token_budget
    request.question = question_of(accepted)
    request.clarifications.extend(accepted.clarifications)
    request.long_term_memory.CopyFrom(accepted.long_term_memory)
    request.conversation_history.extend(accepted.conversation_history)
    if run.state.replanning is not None:
        request.revision.CopyFrom(revision_context(run.state))
    try:
        answer = await answered(
            run.services.planner.MakePlan,
            request,
            timeout_s=timeout_s,
            metadata=run.token("", [PLANNER], timeout_s),
        )
    except grpc.RpcError as error:
        failure = from_rpc_error(error)
        message = f"The question could not be planned: {failure.message}"
        await run.emit(_failed(run, revision, type(failure).__name__, message, None))
        return
    bound_answer(answer, run.now())
    error_type, problems = _problems(run, answer, max_steps)
    if problems and error_type in (NO_NEW_PLAN, CLARIFICATION_LIMIT):
        await run.emit(_failed(run, revision, error_type, " ".join(problems), answer))
        return
    if problems:
        log = run.services.telemetry.logger("bos.gateway.planning")
        log.error("planner made an invalid plan", run=run.state.run_id, problems=problems)
        message = f"The question could not be planned: {' '.join(problems)}"
        await run.emit(_failed(run, revision, error_type, message, answer))
        return
    await run.emit(_planned(run, revision, answer))


def plan_request(
    request: AgentRequest, cards: Sequence[AgentCard], *, fallback_agent: str, max_steps: int
) -> MakePlanRequest:
    """What the planner is asked about a request; history and memory are the caller's to add."""
    return MakePlanRequest(
        question=request.question,
        context=request.context,
        prefer_agents=request.prefer_agents,
        disable_agents=request.disable_agents,
        cards=cards,
        fallback_agent=fallback_agent,
        max_steps=max_steps,
    )


def bound_answer(answer: MakePlanResponse, now: datetime) -> None:
    """Bring what a planner says beside its plan within bounds, in place."""
    answer.DiscardUnknownFields()
    clamp_usage(answer.usage)
    for judged in (answer.decision, answer.intent):
        if (possible := unit(judged.confidence)) != judged.confidence:
            judged.confidence = possible
    try:
        extent(answer.decision.guardrails.values())
    except OutOfBounds:
        answer.decision.guardrails.clear()
    shorten(answer.clarification, MAX_CLARIFICATION_BYTES)
    for part in (answer.decision, answer.intent):
        shorten(part, _MAX_BESIDE_BYTES)
    trace = sound_trace(answer.trace, now)
    del answer.trace[:]
    answer.trace.extend(trace)


def usable_problems(
    answer: MakePlanResponse,
    cards: Sequence[AgentCard],
    disabled: Sequence[str],
    max_steps: int,
    completed: Sequence[str] = (),
) -> list[str]:
    """Why the plan must not be run; a disabled agent counts as unknown."""
    usable = {card.name: card for card in cards if card.name not in disabled}
    return plan_problems(answer.plan, usable, max_steps=max_steps, completed=completed)


def _problems(
    run: EffectContext, answer: MakePlanResponse, max_steps: int
) -> tuple[str, list[str]]:
    """Why the answer is no plan, by type and in words; no words if it is one."""
    state, revised = run.state, run.state.replanning is not None
    if answer.HasField("clarification"):
        limit = questions_limit(state.request, answer.clarification)
        return CLARIFICATION_LIMIT, [] if limit is None else [limit]
    forbidden: list[str] = []
    if revised:
        error_type, forbidden = revision_problems(state, answer.plan)
        if error_type:
            return error_type, forbidden
    kept = [step.step.step_id for step in completed(state)]
    accepted = state.request
    disabled = accepted.request.disable_agents
    return INVALID_PLAN, [
        *usable_problems(answer, accepted.cards, disabled, max_steps, kept),
        *forbidden,
    ]


def _left_s(run: EffectContext) -> float:
    """Time that planning may take; of another plan a step must be able to run as well."""
    if run.state.replanning is None:
        return run.left_s(run_deadline(run.state))
    return run.left_s(steps_deadline(run.state)) / 2


def _planned(run: EffectContext, revision: int, answer: MakePlanResponse) -> LogEvent:
    asks = answer.HasField("clarification")
    planned = Planned(
        revision=revision,
        # Questions come instead of a plan: one that is there as well was never looked at.
        plan=None if asks else answer.plan,
        decision=answer.decision,
        intent=answer.intent,
        trace=answer.trace,
        usage=answer.usage,
        only_plan=answer.only_plan,
    )
    if asks:
        planned.clarification.CopyFrom(answer.clarification)
    return run.stamped(LogEvent(planned=planned))


def _failed(
    run: EffectContext,
    revision: int,
    error_type: str,
    message: str,
    answer: MakePlanResponse | None,
) -> LogEvent:
    trace = error_trace(PLANNER, error_type, message, run.now())
    failed = PlanFailed(
        revision=revision,
        error=AgentError(type=error_type, message=message),
        trace=[*(answer.trace if answer else ()), trace],
        usage=answer.usage if answer else None,
    )
    return run.stamped(LogEvent(plan_failed=failed))
