"""The outcome of a run, built from its state. Pure (SPEC A-14, K-03, K-08, Q-08)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    AGENT_EXECUTION_STATUS_PENDING,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentResult,
)
from bos.common.v1 import Clarification, TraceEvent, Usage
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
from bos_gateway.state import RunState, StepState, add_usage
from bos_plans import stages

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

    from bos.common.v1 import AgentError, Table

_NOT_RUN = "This step was not run."
_NOTHING = "No agent produced a result, so there is nothing to answer from."


def composed_response(
    state: RunState, now: datetime, output: ComposerOutput
) -> OrchestratorResponse:
    """The outcome of a run whose answer was composed."""
    response = _response(state, now, _status(state))
    response.answer = output.answer
    response.sources.extend(output.sources)
    response.highlights.extend(output.highlights)
    response.followups.extend(output.followups)
    response.charts.extend(output.charts)
    if output.HasField("data"):
        response.data.CopyFrom(output.data)
    add_usage(response.metadata.usage, output.usage)
    response.trace.extend(output.trace)
    _order(response.trace)
    failed = next((r for r in response.agent_results if r.HasField("error")), None)
    if response.status == RUN_STATUS_FAILED and failed is not None:
        response.error.CopyFrom(failed.error)
    return response


def explained_response(state: RunState, now: datetime, error: AgentError) -> OrchestratorResponse:
    """The outcome of a run that ends without an answer: cancelled, or nothing could be planned."""
    status = RUN_STATUS_CANCELLED if state.cancel_reason is not None else RUN_STATUS_FAILED
    response = _response(state, now, status)
    response.answer = error.message
    response.error.CopyFrom(error)
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
    return response


def fallback_output(state: RunState) -> ComposerOutput:
    """What can be said without the composer: the agents' own answers (SPEC K-16)."""
    results = [step.result for step in state.steps.values() if step.result is not None]
    answers = [r.answer for r in results if r.answer and _ok(r)]
    errors = [f"{r.agent_name}: {r.error.message}" for r in results if r.HasField("error")]
    output = ComposerOutput(answer="\n\n".join([*answers, *errors]) or _NOTHING, deterministic=True)
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
    results = [(step.step, step.result) for step in state.steps.values() if step.result]
    if state.request.request.system_prompt or not all(_ok(result) for _, result in results):
        return None
    flagged = [result for step, result in results if step.is_final_answer and result.answer]
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
    table = first_table([final, *(result for _, result in results)])
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
    """The step's result with its trace, or a pending one for a step that never ended."""
    result = AgentResult()
    if step.result is None:
        result.agent_id = step.agent_id
        result.agent_name = step.step.agent
        result.status = AGENT_EXECUTION_STATUS_PENDING
        result.task_description = step.step.task
        result.error.type = "NotRun"
        result.error.message = _NOT_RUN
    else:
        result.CopyFrom(step.result)
    result.trace.extend(step.trace)
    return result


def _response(state: RunState, now: datetime, status: RunStatus) -> OrchestratorResponse:
    response = OrchestratorResponse(run_id=state.run_id, status=status)
    response.agent_results.extend(result_of(step) for step in state.steps.values())
    response.trace.extend(state.plan_trace)
    for result in response.agent_results:
        response.trace.extend(result.trace)
    _order(response.trace)
    if state.decision is not None:
        response.planner.CopyFrom(state.decision)
    if state.intent is not None:
        response.intent.CopyFrom(state.intent)
    metadata = ResponseMetadata(
        agents=dict.fromkeys(step.step.agent for step in state.steps.values()),
        stages=plan_stages(state),
        revision=state.revision,
        usage=Usage(),
    )
    add_usage(metadata.usage, state.usage)
    metadata.latency.FromTimedelta(now - state.accept_time)
    metadata.trace_id = _trace_id(state)
    if state.decision is not None and state.decision.HasField("confidence"):
        metadata.planner_confidence = state.decision.confidence
    response.metadata.CopyFrom(metadata)
    return response


def _status(state: RunState) -> RunStatus:
    """SPEC Q-08: partial as soon as one step produced something, failed only when none did."""
    good = [step.status == AGENT_EXECUTION_STATUS_SUCCEEDED for step in state.steps.values()]
    if all(good):
        return RUN_STATUS_SUCCEEDED
    return RUN_STATUS_PARTIALLY_SUCCEEDED if any(good) else RUN_STATUS_FAILED


def _clarifications(state: RunState) -> Iterable[Clarification]:
    if state.clarification is not None:
        yield state.clarification
    for step in state.steps.values():
        if step.result and step.status == AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION:
            yield step.result.clarification


def _order(trace: RepeatedCompositeFieldContainer[TraceEvent]) -> None:
    """By time; entries of the same time stay as they came (SPEC P-04, X-34)."""
    trace.sort(key=lambda event: event.create_time.ToNanoseconds())


def _trace_id(state: RunState) -> str:
    """The trace id inside the W3C traceparent ``version-trace-span-flags``."""
    parts = state.request.traceparent.split("-")
    return parts[1] if len(parts) == 4 else ""


def _ok(result: AgentResult) -> bool:
    return result.status == AGENT_EXECUTION_STATUS_SUCCEEDED
