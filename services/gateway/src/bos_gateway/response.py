"""The outcome of a run, built from its state. Pure (SPEC A-14, K-03, K-08, Q-08)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_AWAITING_APPROVAL,
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    AGENT_EXECUTION_STATUS_PENDING,
    AGENT_EXECUTION_STATUS_RUNNING,
    AGENT_EXECUTION_STATUS_SKIPPED,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentResult,
)
from bos.common.v1 import AgentError, Clarification, Usage
from bos.composer.v1 import ComposerOutput
from bos.gateway.v1 import (
    RUN_STATUS_CANCELLED,
    RUN_STATUS_CLARIFICATION_NEEDED,
    RUN_STATUS_FAILED,
    RUN_STATUS_PARTIALLY_SUCCEEDED,
    RUN_STATUS_SUCCEEDED,
    OrchestratorResponse,
    ResponseMetadata,
    RunStatus,
    Stage,
)
from bos_gateway.attempts import definitive_failure
from bos_gateway.budget import held_beside_steps, held_by_steps
from bos_gateway.failures import CANCELLED, COMPOSING_FAILED, NEUTRAL, failed_result
from bos_gateway.results import MAX_RESULTS_BYTES, fit, fit_response
from bos_gateway.state import RunState, StepState, add_usage
from bos_gateway.unknown_outcomes import left_unknown, uncertain_actions
from bos_plans import stages

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from bos.common.v1 import Table

_NOT_RUN = "This step was not run."
_UNDECIDED = "It waited for an approval when the run ended; what it proposed was not done."
_UNASKED = "The run ended before anybody said what is to become of it."
_STOPPED = "It was stopped while it ran; what it had begun may have taken effect."
_NOTHING = "No agent produced a result, so there is nothing to answer from."


def composed_response(
    state: RunState, now: datetime, output: ComposerOutput, *, problem: str = ""
) -> OrchestratorResponse:
    """The outcome of a run whose answer was composed.

    Args:
        state: The run.
        now: The moment of its end (UTC).
        output: The answer.
        problem: Why the composer could not write it; the answer is then only what the agents said,
            which is partial at best (SPEC K-16, Q-08).
    """
    response = _response(state, now, _status(state, composed=not problem))
    response.answer = output.answer
    response.sources.extend(output.sources)
    response.highlights.extend(output.highlights)
    response.followups.extend(output.followups)
    response.charts.extend(output.charts)
    if output.HasField("data"):
        response.data.CopyFrom(output.data)
    add_usage(response.metadata.usage, output.usage)
    response.trace.extend(output.trace)
    failed = next((r for r in response.agent_results if r.HasField("error")), None)
    if response.status == RUN_STATUS_FAILED and failed is not None:
        response.error.CopyFrom(failed.error)
    elif response.status == RUN_STATUS_FAILED:
        response.error.CopyFrom(AgentError(type=COMPOSING_FAILED, message=problem))
    fit_response(response)
    return response


def broken_response(state: RunState) -> OrchestratorResponse:
    """The outcome of a run that a defect of ours ended; made of nothing that could break again."""
    error = AgentError(type="InternalError", message=NEUTRAL)
    return OrchestratorResponse(
        run_id=state.run_id, status=RUN_STATUS_FAILED, answer=NEUTRAL, error=error
    )


def explained_response(state: RunState, now: datetime, error: AgentError) -> OrchestratorResponse:
    """The outcome of a run that ends without an answer: cancelled, or nothing could be planned."""
    status = RUN_STATUS_CANCELLED if state.cancel_reason is not None else RUN_STATUS_FAILED
    response = _response(state, now, status)
    response.answer = error.message
    response.error.CopyFrom(error)
    # Whoever plans or composes is stopped with the run, and will not say what that consumed.
    response.metadata.usage.unreported_tokens += held_beside_steps(state)
    fit_response(response)
    return response


def clarification_response(state: RunState, now: datetime) -> OrchestratorResponse:
    """The outcome of a run that needs the user to settle something first (SPEC D-03, D-04)."""
    response = _response(state, now, RUN_STATUS_CLARIFICATION_NEEDED)
    asked = list(_clarifications(state))
    for clarification in asked:
        response.clarification.questions.extend(clarification.questions)
        response.clarification.assumptions.extend(clarification.assumptions)
    lines = [question.question for question in response.clarification.questions]
    response.answer = "\n".join(["Before I can answer:", *(f"- {line}" for line in lines)])
    fit_response(response)
    return response


def fallback_output(state: RunState) -> ComposerOutput:
    """What can be said without the composer: the agents' own answers (SPEC K-16)."""
    results = [step.result for step in state.result_steps if step.result is not None]
    answers = [r.answer for r in results if r.answer and _ok(r)]
    errors = [f"{r.agent_name}: {r.error.message}" for r in results if r.HasField("error")]
    texts = [*answers, *errors, *filter(None, (definitive_failure(state),))]
    output = ComposerOutput(answer="\n\n".join(texts) or _NOTHING, deterministic=True)
    table = first_table(results)
    if table is not None:
        output.data.CopyFrom(table)
    for result in results:
        output.sources.extend(result.sources)
    return output


def final_answer(state: RunState) -> ComposerOutput | None:
    """The answer that a step has already synthesised, if the plan says so (SPEC C-24).

    Only when every step went well and nothing asks for another wording; otherwise the composer
    must explain what is missing.
    """
    results = [step.result for step in state.result_steps if step.result]
    if state.request.request.system_prompt or not all(map(_ok, results)):
        return None
    # Of the latest attempt: an earlier one did not know yet what came after it.
    flagged = [
        step.result
        for step in state.steps.values()
        if step.step.is_final_answer and step.result and step.result.answer
    ]
    if len(flagged) != 1:
        return None
    final = flagged[0]
    output = ComposerOutput(
        answer=final.answer,
        sources=final.sources,
        highlights=final.highlights,
        followups=final.followups,
        charts=final.charts,
        deterministic=True,
    )
    table = first_table([final, *results])
    if table is not None:
        output.data.CopyFrom(table)
    return output


def first_table(results: Iterable[AgentResult]) -> Table | None:
    """The first table among successful results (SPEC K-03)."""
    return next((r.table for r in results if _ok(r) and r.HasField("table")), None)


def plan_stages(state: RunState) -> list[Stage]:
    """The stages of the plan in force, for display."""
    return [Stage(step_ids=ids) for ids in stages(state.plan)] if state.plan else []


def result_of(step: StepState) -> AgentResult:
    """The step's result with its trace, or what is to be said of a step that did not end."""
    result = AgentResult()
    if step.result is not None:
        result.CopyFrom(step.result)
    elif uncertain_actions(step):
        stopped = step.status == AGENT_EXECUTION_STATUS_RUNNING
        result.CopyFrom(left_unknown(step, _STOPPED if stopped else _UNASKED))
    elif step.status == AGENT_EXECUTION_STATUS_RUNNING:
        result.CopyFrom(failed_result(step, CANCELLED, _STOPPED))
    elif step.status == AGENT_EXECUTION_STATUS_AWAITING_APPROVAL:
        skipped = AGENT_EXECUTION_STATUS_SKIPPED
        result.CopyFrom(failed_result(step, CANCELLED, _UNDECIDED, skipped))
    else:
        pending = AGENT_EXECUTION_STATUS_PENDING
        result.CopyFrom(failed_result(step, "NotRun", _NOT_RUN, pending))
    result.trace.extend(step.trace)
    return result


def _response(state: RunState, now: datetime, status: RunStatus) -> OrchestratorResponse:
    response = OrchestratorResponse(run_id=state.run_id, status=status)
    results = [result_of(step) for step in state.result_steps]
    response.agent_results.extend(fit(results, MAX_RESULTS_BYTES))
    # The steps' own events stay with their results; whoever asks for the trace gets them merged.
    response.trace.extend(state.plan_trace)
    for attempt in state.past:
        for step in attempt.replaced:
            response.trace.extend(step.trace)
    if state.decision is not None:
        response.planner.CopyFrom(state.decision)
    if state.intent is not None:
        response.intent.CopyFrom(state.intent)
    metadata = ResponseMetadata(
        agents=dict.fromkeys(step.step.agent for step in state.result_steps),
        stages=plan_stages(state),
        revision=state.revision,
        usage=Usage(),
    )
    add_usage(metadata.usage, state.usage)
    # Of steps that are stopped with the run nobody will say what they consumed.
    metadata.usage.unreported_tokens += held_by_steps(state)
    metadata.max_tokens = state.request.settings.max_tokens
    metadata.conversation_id = state.request.request.conversation_id
    metadata.latency.FromTimedelta(now - state.accept_time)
    metadata.trace_id = _trace_id(state)
    if state.decision is not None and state.decision.HasField("confidence"):
        metadata.planner_confidence = state.decision.confidence
    response.metadata.CopyFrom(metadata)
    return response


def _status(state: RunState, *, composed: bool) -> RunStatus:
    """SPEC Q-08: partial as soon as one step produced something, failed only when none did."""
    good = [step.status == AGENT_EXECUTION_STATUS_SUCCEEDED for step in state.result_steps]
    if composed and all(good):
        return RUN_STATUS_SUCCEEDED
    return RUN_STATUS_PARTIALLY_SUCCEEDED if any(good) else RUN_STATUS_FAILED


def _clarifications(state: RunState) -> Iterable[Clarification]:
    if state.clarification is not None:
        yield state.clarification
    for step in state.steps.values():
        if step.result and step.status == AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION:
            yield step.result.clarification


def _trace_id(state: RunState) -> str:
    """The trace id inside the W3C traceparent ``version-trace-span-flags``."""
    parts = state.request.traceparent.split("-")
    return parts[1] if len(parts) == 4 else ""


def _ok(result: AgentResult) -> bool:
    return result.status == AGENT_EXECUTION_STATUS_SUCCEEDED
