"""Plans a run: asks the planner, checks its plan again; agents prefetch meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc

from bos.agent import v1 as agent
from bos.common.v1 import AgentError, Usage
from bos.planner.v1 import MakePlanRequest, MakePlanResponse
from bos.runlog.v1 import LogEvent, PlanFailed, Planned
from bos_chassis.values import to_value
from bos_errors import AgentErrorType, BosError, from_rpc_error
from bos_gateway.core import failures, result_limits
from bos_gateway.core.budget import steps_left
from bos_gateway.core.clarification import question_of, questions_limit
from bos_gateway.core.decide import run_deadline, steps_deadline
from bos_gateway.core.revision import completed, revision_problems
from bos_gateway.core.revision_context import revision_context
from bos_gateway.effects.call_retries import answered
from bos_gateway.effects.context import PLANNER
from bos_plans import (
    canonical_name,
    heuristic_plan,
    plan_problems,
    select,
    with_canonical_names,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.planner.v1 import RevisionContext
    from bos.runlog.v1 import RunAccepted
    from bos_gateway.core.decide import MakePlan
    from bos_gateway.core.run_state import RunState
    from bos_gateway.effects.context import Deps, EffectContext
    from bos_gateway.effects.run_tokens import Metadata

# Of each thing that a planner says beside its plan.
_MAX_BESIDE_BYTES = 32 * 1024
# What takes longer than making a plan is hardly ahead of the steps any more.
_PREPARE_TIMEOUT_S = 5.0
_MAX_PREPARING = 8
# A planner that works may end so; what is said of it needs no introduction.
_NO_FAULT = frozenset({AgentErrorType.NO_NEW_PLAN, AgentErrorType.CLARIFICATION_LIMIT})
_KEYWORDS_PLAN = "Keywords of the question choose the agents instead."


async def make_plan(run: EffectContext, command: MakePlan) -> None:
    """Ask the planner; ends in Planned or PlanFailed."""
    await run.emit(run.stamped(await _planned(run, command)))


async def _planned(run: EffectContext, command: MakePlan) -> LogEvent:
    state, revision = run.state, command.revision
    settings = state.request.settings
    max_steps = steps_left(state)
    if max_steps <= 0:  # which in a request means no limit
        text = f"The limit of {settings.max_steps} steps over all plans was reached."
        return _failed(
            run, revision, AgentErrorType.MAX_STEPS_REACHED, text, MakePlanResponse(usage={})
        )
    left_s = run.left_s(run_deadline(state))
    if state.replanning is not None:  # then a step must be able to run as well
        left_s = run.left_s(steps_deadline(state)) / 2
    timeout_s = min(settings.plan_timeout.ToNanoseconds() / 1e9, left_s)
    revising = None if state.replanning is None else revision_context(state)
    request = plan_request(state.request, max_steps, command.token_budget, revising)
    try:
        token = run.token(PLANNER, timeout_s)
        answer = await ask_planner(run.deps, request, timeout_s, token)
    except BosError as error:
        return _without_plan(run, command, request, type(error).__name__, [error.message], None)
    error_type, problems = _problems(state, answer, max_steps)
    if problems:
        return _without_plan(run, command, request, error_type, problems, answer)
    asks = answer.HasField("clarification")
    planned = Planned(
        revision=revision,
        # Questions come instead of a plan: one that is there as well was never looked at.
        plan=None if asks else answer.plan,
        clarification=answer.clarification if asks else None,
        decision=answer.decision,
        intent=answer.intent,
        trace=answer.trace,
        usage=answer.usage,
        only_plan=answer.only_plan,
    )
    return LogEvent(planned=planned)


def _without_plan(
    run: EffectContext,
    command: MakePlan,
    request: MakePlanRequest,
    error_type: str,
    problems: list[str],
    answer: MakePlanResponse | None,
) -> LogEvent:
    """Fallback for an unavailable planner or an invalid plan.

    The first plan is made of keywords then, so that the run loses what a model would have planned
    and nothing else. A revision is not: keywords have no other idea than before. Nor are plans in
    the place of questions beyond the limit: what is unclear stays unclear.
    """
    text, is_fault = " ".join(problems), error_type not in _NO_FAULT
    if is_fault and answer is not None:
        log = run.deps.telemetry.logger("bos.gateway.plan")
        log.error("planner made an invalid plan", run=run.state.run_id, problems=problems)
    if request.HasField("revision") or error_type == AgentErrorType.CLARIFICATION_LIMIT:
        if is_fault:
            text = f"The question could not be planned: {text}"
        return _failed(run, command.revision, error_type, text, answer)
    made = plan_by_keywords(request, text)
    trace = failures.error_trace(PLANNER, error_type, f"{text} {_KEYWORDS_PLAN}", run.now())
    # What a call that broke off has consumed will not be reported.
    lost = Usage(unreported_tokens=request.token_budget)
    planned = Planned(
        revision=command.revision,
        plan=made.plan,
        decision=made.decision,
        intent=made.intent,
        trace=[*(answer.trace if answer else ()), trace],
        usage=answer.usage if answer else lost,
    )
    return LogEvent(planned=planned)


def plan_by_keywords(request: MakePlanRequest, why: str) -> MakePlanResponse:
    """A plan without the planner, for a question that was not planned before."""
    return heuristic_plan(
        request.question,
        select(request),
        max_steps=request.max_steps,
        why=f"{why} {_KEYWORDS_PLAN}",
    )


def plan_request(
    accepted: RunAccepted, max_steps: int, tokens: int | None, revision: RevisionContext | None
) -> MakePlanRequest:
    """The planner's request for an accepted question."""
    request = accepted.request
    return MakePlanRequest(
        question=question_of(accepted),
        clarifications=accepted.clarifications,
        context=request.context,
        long_term_memory=accepted.long_term_memory,
        conversation_history=accepted.conversation_history,
        prefer_agents=request.prefer_agents,
        disable_agents=request.disable_agents,
        cards=accepted.cards,
        fallback_agent=accepted.settings.fallback_agent,
        max_steps=max_steps,
        token_budget=tokens,
        revision=revision,
        model=request.model,
    )


async def ask_planner(
    deps: Deps, request: MakePlanRequest, timeout_s: float, token: Metadata
) -> MakePlanResponse:
    """The planner's answer, with canonical names; what is beside its plan is within bounds.

    Raises:
        BosError: it did not answer.
    """
    restart_s = deps.settings.restart_wait_s
    answer = await answered(deps.planner.MakePlan, request, timeout_s, token, restart_s=restart_s)
    answer.DiscardUnknownFields()
    result_limits.clamp_usage(answer.usage)
    result_limits.shorten(answer.clarification, result_limits.MAX_CLARIFICATION_BYTES)
    if result_limits.values_problem(answer.decision.guardrails.values()):
        answer.decision.guardrails.clear()
    for part in (answer.decision, answer.intent):
        result_limits.clamp(part, result_limits.MAX_CONFIDENCE)
        result_limits.shorten(part, _MAX_BESIDE_BYTES)
    _name_canonically(answer, request)
    _name_unavailable(answer, request)
    result_limits.sound_trace(answer.trace, deps.clock.now())
    return answer


def _name_canonically(answer: MakePlanResponse, request: MakePlanRequest) -> None:
    """Replace aliases of agents and tools by canonical names, in place."""
    cards = {card.name: card for card in request.cards}
    named: dict[str, str] = {}
    if 0 < len(answer.plan.steps) <= request.max_steps:  # a longer plan is refused as it is
        written = [step.agent for step in answer.plan.steps]
        answer.plan.CopyFrom(with_canonical_names(answer.plan, cards))
        named = dict(zip(written, (step.agent for step in answer.plan.steps), strict=True))

    def canonical(name: str) -> str:
        return named.get(name) or canonical_name(name, cards) or name

    chosen = dict.fromkeys(map(canonical, answer.decision.chosen_agents))
    answer.decision.chosen_agents[:] = chosen
    answer.intent.suggested_next_agent = canonical(answer.intent.suggested_next_agent)


def _name_unavailable(answer: MakePlanResponse, request: MakePlanRequest) -> None:
    """Say which agents of the user's wishes are unavailable, also if the planner does not."""
    present = {card.name for card in request.cards}
    wished = (*request.prefer_agents, *request.disable_agents)
    if absent := list(dict.fromkeys(name for name in wished if name not in present)):
        answer.decision.guardrails["unavailable_agents"].CopyFrom(to_value(absent))


def usable_problems(
    answer: MakePlanResponse, accepted: RunAccepted, max_steps: int, completed: Sequence[str] = ()
) -> list[str]:
    """Why the plan must not be run; a disabled agent counts as unknown."""
    disabled = accepted.request.disable_agents
    usable = {card.name: card for card in accepted.cards if card.name not in disabled}
    return plan_problems(answer.plan, usable, max_steps=max_steps, completed=completed)


def _problems(state: RunState, answer: MakePlanResponse, max_steps: int) -> tuple[str, list[str]]:
    """Why the answer is no plan, by type and in words; no words if it is one."""
    if answer.HasField("clarification"):
        limit = questions_limit(state.request, answer.clarification)
        return AgentErrorType.CLARIFICATION_LIMIT, [limit] if limit else []
    forbidden: list[str] = []
    if state.replanning is not None:
        error_type, forbidden = revision_problems(state, answer.plan)
        if error_type:
            return error_type, forbidden
    kept = [step.step.step_id for step in completed(state)]
    problems = usable_problems(answer, state.request, max_steps, kept)
    return AgentErrorType.INVALID_PLAN, problems + forbidden


def _failed(
    run: EffectContext, revision: int, error_type: str, text: str, answer: MakePlanResponse | None
) -> LogEvent:
    trace = failures.error_trace(PLANNER, error_type, text, run.now())
    failed = PlanFailed(
        revision=revision,
        error=AgentError(type=error_type, message=text),
        trace=[*(answer.trace if answer else ()), trace],
        usage=answer.usage if answer else None,
    )
    return LogEvent(plan_failed=failed)


async def prepare_agents(run: EffectContext) -> None:
    """Have agents prefetch (``Prepare``) while the first plan is made; returns when all are done.

    Nothing depends on it, so nothing of it is in the run's log: planning does not wait for it,
    failures are counted and forgotten, and a replica that adopts the run does without.
    """
    accepted = run.state.request
    barred = {*accepted.request.disable_agents, *accepted.unavailable_agents}
    cards = [card for card in accepted.cards if card.prepares and card.name not in barred]
    # Those first that the user prefers.
    cards.sort(key=lambda card: card.name not in accepted.request.prefer_agents)
    await asyncio.gather(*(_prepare(run, card) for card in cards[:_MAX_PREPARING]))


async def _prepare(run: EffectContext, card: agent.AgentCard) -> None:
    stub = run.deps.registry.stub(card.name)
    if stub is None:
        return
    accepted = run.state.request
    metadata = agent.TaskMetadata(
        user_id=accepted.user_id,
        run_id=run.state.run_id,
        conversation_id=accepted.request.conversation_id,
    )
    request = agent.PrepareRequest(metadata=metadata, question=question_of(accepted))
    timeout_s = min(_PREPARE_TIMEOUT_S, run.left_s(run_deadline(run.state)))
    token = run.agent_token(card.name, card, timeout_s)
    call = stub.Prepare(request, timeout=timeout_s, metadata=token)
    outcome = "cancelled"
    try:
        await call
        outcome = "done"
    except grpc.RpcError as error:
        outcome = from_rpc_error(error).code.name.lower()
    finally:
        call.cancel()
        name = run.deps.metrics.agent(card.name)
        run.deps.metrics.preparations.labels(name, outcome).inc()
