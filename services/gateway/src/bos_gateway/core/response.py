"""Response of a run, built from its state. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from bos.agent.v1 import AgentResult
from bos.common.v1 import AgentError, Outcome, Table
from bos.composer.v1 import ComposerOutput
from bos.gateway import v1 as gateway
from bos.gateway.v1 import OrchestratorResponse
from bos_errors import AgentErrorType
from bos_gateway.core.budget import held_beside_steps, held_by_steps
from bos_gateway.core.failures import NEUTRAL, failed_result
from bos_gateway.core.fold import add_usage
from bos_gateway.core.result_limits import MAX_RESULTS_BYTES, fit, fit_response
from bos_gateway.core.revision_context import definitive_failure
from bos_gateway.core.run_state import (
    AWAITING_APPROVAL,
    NEEDS_CLARIFICATION,
    PENDING,
    SKIPPED,
    RunState,
    StepState,
)
from bos_gateway.core.taint import is_tainted, mark, outcome_is_tainted
from bos_gateway.core.tracing.ids import RunTrace
from bos_gateway.core.unknown_outcomes import left_unknown, uncertain_actions
from bos_plans import EndedStep, run_outcome, stages

_NOT_RUN = "This step was not run."
_UNDECIDED = "It waited for an approval when the run ended; what it proposed was not done."
_UNASKED = "The run ended before its approver decided."
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
            which is partial at best.
    """
    status = _status(state.result_steps, problem)
    response = _response(state, now, status)
    if status != gateway.RUN_STATUS_FAILED:
        response.outcome = _outcome(state, cut_off=output.cut_off)
    response.answer = output.answer
    for name in ("sources", "highlights", "followups", "charts", "sections", "trace"):
        getattr(response, name).extend(getattr(output, name))
    if output.HasField("data"):
        response.data.CopyFrom(output.data)
    add_usage(response.metadata.usage, output.usage)
    if status == gateway.RUN_STATUS_FAILED:
        unwritten = AgentError(type=AgentErrorType.COMPOSING_FAILED, message=problem)
        errors = (result.error for result in response.agent_results if result.HasField("error"))
        response.error.CopyFrom(next(errors, unwritten))
    fit_response(response)
    return response


def _status(steps: Sequence[StepState], problem: str) -> gateway.RunStatus:
    """How a composed run ends: partial without some of its steps, failed only by failures.

    An answer that could not be composed fails a run of which no step has an outcome.
    """
    good = [step.succeeded for step in steps]
    if all(good) and not problem:
        return gateway.RUN_STATUS_SUCCEEDED
    unanswered = problem and not any(step.outcome for step in steps)
    failed = unanswered or any(step.settled and not step.outcome for step in steps)
    if failed and not any(good):
        return gateway.RUN_STATUS_FAILED
    return gateway.RUN_STATUS_PARTIALLY_SUCCEEDED


def _outcome(state: RunState, *, cut_off: bool) -> Outcome:
    ended = {step.step.step_id: EndedStep(step.outcome, step.needs) for step in state.result_steps}
    return run_outcome(ended, cut_off=cut_off)


def broken_response(state: RunState) -> OrchestratorResponse:
    """The outcome of a run that an internal error ended; made of its id alone."""
    error = AgentError(type=AgentErrorType.INTERNAL, message=NEUTRAL)
    return OrchestratorResponse(
        run_id=state.run_id, status=gateway.RUN_STATUS_FAILED, answer=NEUTRAL, error=error
    )


def explained_response(
    state: RunState, now: datetime, error_type: str, message: str
) -> OrchestratorResponse:
    """The outcome of a run that ends without an answer: cancelled, or nothing could be planned."""
    cancelled = state.cancel_reason is not None
    status = gateway.RUN_STATUS_CANCELLED if cancelled else gateway.RUN_STATUS_FAILED
    response = _response(state, now, status)
    response.answer = message
    response.error.CopyFrom(AgentError(type=error_type, message=message))
    # Planner and composer are stopped with the run, and will not say what that consumed.
    response.metadata.usage.unreported_tokens += held_beside_steps(state)
    fit_response(response)
    return response


def clarification_response(state: RunState, now: datetime) -> OrchestratorResponse:
    """The outcome of a run that needs the user to settle something first."""
    response = _response(state, now, gateway.RUN_STATUS_CLARIFICATION_NEEDED)
    asked = response.clarification
    if state.clarification is not None:
        asked.MergeFrom(state.clarification)
    for step in state.steps.values():
        if step.result and step.status == NEEDS_CLARIFICATION:
            asked.MergeFrom(step.result.clarification)
    lines = ["Before I can answer:", *(f"- {question.question}" for question in asked.questions)]
    response.answer = "\n".join(lines)
    fit_response(response)
    return response


def fallback_output(state: RunState) -> ComposerOutput:
    """Answer without the composer: the agents' own answers."""
    steps = state.result_steps
    results, good = _results(steps), _results(step for step in steps if step.succeeded)
    answers = [result.answer for result in good if result.answer]
    errors = [f"{r.agent_name}: {r.error.message}" for r in results if r.HasField("error")]
    texts = [*answers, *errors, *filter(None, (definitive_failure(state),))]
    return ComposerOutput(
        answer="\n\n".join(texts) or _NOTHING,
        sources=[source for result in results for source in result.sources],
        data=_first_table(good),
        highlights=[text for result in good for text in result.highlights],
        followups=[text for result in good for text in result.followups],
        charts=[chart for result in good for chart in result.charts],
        deterministic=True,
    )


def final_answer(state: RunState) -> ComposerOutput | None:
    """The answer that a step has already synthesised, if the plan says so.

    Only when every step went well and nothing asks for another wording; otherwise the composer
    must explain what is missing.
    """
    ended = [step for step in state.result_steps if step.result is not None]
    if state.request.request.system_prompt or not all(step.succeeded for step in ended):
        return None
    # Of the latest attempt: an earlier one did not know yet what came after it.
    flagged = _results(step for step in state.steps.values() if step.step.is_final_answer)
    answers = [result for result in flagged if result.answer]
    if len(answers) != 1:
        return None
    final = answers[0]
    return ComposerOutput(
        answer=final.answer,
        sources=final.sources,
        highlights=final.highlights,
        followups=final.followups,
        charts=final.charts,
        data=_first_table([final, *_results(ended)]),
        deterministic=True,
    )


def _results(steps: Iterable[StepState]) -> list[AgentResult]:
    return [step.result for step in steps if step.result is not None]


def _first_table(results: Iterable[AgentResult]) -> Table | None:
    return next((result.table for result in results if result.HasField("table")), None)


def _result_of(state: RunState, step: StepState) -> AgentResult:
    """The step's result with its trace, or what is to be said of a step that did not end."""
    result = AgentResult()
    result.CopyFrom(step.result or _unended(step))
    mark(result, tainted=step.result is None and is_tainted(state, step))
    result.trace.extend(step.trace)
    return result


def _unended(step: StepState) -> AgentResult:
    if uncertain_actions(step):
        return left_unknown(step, _STOPPED if step.running else _UNASKED)
    if step.running:
        return failed_result(step, AgentErrorType.CANCELLED, _STOPPED)
    if step.status == AWAITING_APPROVAL:
        return failed_result(step, AgentErrorType.CANCELLED, _UNDECIDED, SKIPPED)
    return failed_result(step, AgentErrorType.NOT_RUN, _NOT_RUN, PENDING)


def _response(state: RunState, now: datetime, status: gateway.RunStatus) -> OrchestratorResponse:
    steps, decision = state.result_steps, state.decision
    # The steps' own events stay with their results; clients that ask for the trace get them merged.
    replaced = [step for attempt in state.past for step in attempt.replaced]
    trace = RunTrace.of(state.run_id, state.request)
    response = OrchestratorResponse(
        run_id=state.run_id,
        status=status,
        agent_results=fit([_result_of(state, step) for step in steps], MAX_RESULTS_BYTES),
        trace=[*state.plan_trace, *(event for step in replaced for event in step.trace)],
        planner=decision,
        intent=state.intent,
        tainted=outcome_is_tainted(state),
        metadata=gateway.ResponseMetadata(
            agents=dict.fromkeys(step.step.agent for step in steps),
            stages=[gateway.Stage(step_ids=ids) for ids in stages(state.plan)]
            if state.plan
            else [],
            revision=state.revision,
            max_tokens=state.request.settings.max_tokens,
            conversation_id=state.request.request.conversation_id,
            latency=now - state.accept_time,
            trace_id=f"{trace.trace_id:032x}" if trace is not None else "",
        ),
    )
    add_usage(response.metadata.usage, state.usage)
    # Of steps that are stopped with the run it is unknown what they consumed.
    response.metadata.usage.unreported_tokens += held_by_steps(state)
    if decision is not None and decision.HasField("confidence"):
        response.metadata.planner_confidence = decision.confidence
    return response
