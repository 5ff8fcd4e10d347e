"""Constructors of results; the kit adds ids, usage and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bos.agent.v1 import AgentExecutionStatus, AgentResult, ProposedAction
from bos.common.v1 import (
    Chart,
    Clarification,
    ClarifyingQuestion,
    DatabaseQuery,
    Outcome,
    Source,
    Table,
)
from bos_agentkit.failures import agent_error
from bos_agentkit.task import AgentTask
from bos_chassis.values import to_value_map


def succeeded(
    task: AgentTask,
    *,
    answer: str = "",
    table: Table | None = None,
    data: Mapping[str, Any] | None = None,
    confidence: float = 1.0,
    sources: Sequence[Source] = (),
    charts: Sequence[Chart] = (),
    highlights: Sequence[str] = (),
    followups: Sequence[str] = (),
    assumptions: Sequence[str] = (),
    caveats: Sequence[str] = (),
    query: DatabaseQuery | None = None,
    outcome: Outcome = Outcome.OUTCOME_ANSWERED,
) -> AgentResult:
    """Result of a step that succeeded.

    Args:
        task: The step.
        answer: Text for the user.
        table: Tabular result, if any.
        data: Full results by name, of types that ``to_value`` takes; name them in the card's
            ``output_fields`` so that plans can refer to them.
        confidence: From 0 to 1.
        sources: Sources of the answer.
        charts: Charts of aggregated results.
        highlights: Noteworthy points.
        followups: Suggested next questions.
        assumptions: Made beyond the task; the final answer states them.
        caveats: What checks of the result found; the final answer states them.
        query: The query that it rests on, as it ran; users may verify it.
        outcome: What came of it; where it is not ANSWERED, ``answer`` says why.

    Raises:
        TypeError, ValueError: data without a typed form, or a confidence outside 0 to 1.
    """
    if not 0 <= confidence <= 1:
        raise ValueError(f"confidence must be between 0 and 1, not {confidence}")
    return AgentResult(
        status=AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED,
        agent_id=task.input.agent_id,
        agent_name=task.agent,
        task_description=task.effective_task,
        answer=answer,
        table=table,
        data=None if data is None else to_value_map(data),
        confidence=confidence,
        sources=sources,
        charts=charts,
        highlights=highlights,
        followups=followups,
        assumptions=assumptions,
        caveats=caveats,
        query=query,
        outcome=outcome,
    )


def failed(
    task: AgentTask,
    *,
    type: str,
    message: str,
    details: Mapping[str, Any] | None = None,
    retryable: bool = False,
) -> AgentResult:
    """Result of a step that failed; raising ``AgentFailure`` has the same effect.

    ``type``, ``message``, ``details`` and ``retryable`` are those of ``AgentFailure``; data
    recorded by ``task.partial`` are kept.
    """
    return AgentResult(
        status=AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED,
        agent_id=task.input.agent_id,
        agent_name=task.agent,
        task_description=task.effective_task,
        error=agent_error(type, message, details, retryable=retryable),
        partial_data=task.partial_data,
    )


def awaiting_approval(
    task: AgentTask, actions: Sequence[ProposedAction], *, answer: str = ""
) -> AgentResult:
    """Result of a step that proposes actions; letting ``ApprovalNeeded`` pass has the same effect.

    The step is executed again with the approved actions, and then ``Agent.perform`` is called.
    """
    return AgentResult(
        status=AgentExecutionStatus.AGENT_EXECUTION_STATUS_AWAITING_APPROVAL,
        agent_id=task.input.agent_id,
        agent_name=task.agent,
        task_description=task.effective_task,
        answer=answer,
        proposed_actions=actions,
        partial_data=task.partial_data,
    )


def needs_clarification(
    task: AgentTask,
    questions: Sequence[ClarifyingQuestion],
    *,
    assumptions: Sequence[str] = (),
) -> AgentResult:
    """Result of a step with questions to the user; ``assumptions`` would stand in for a reply."""
    return AgentResult(
        status=AgentExecutionStatus.AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
        agent_id=task.input.agent_id,
        agent_name=task.agent,
        task_description=task.effective_task,
        clarification=Clarification(questions=questions, assumptions=assumptions),
        partial_data=task.partial_data,
    )
