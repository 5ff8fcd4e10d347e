"""Check of a query against the metrics that the question names: one correction, then a refusal."""

from __future__ import annotations

from bos_agentkit import AgentFailure
from bos_errors import AgentErrorType
from bos_sql.grounding.catalog import Metric
from bos_sql.semantics.agreement import disagreement
from bos_sql.steps.guard import ApprovedQuery
from bos_sql.steps.step_state import MetricDisagreement, StepState

REASON = "METRIC_DISAGREES"
"""``reason`` in the details of a refusal."""

_MAX_CORRECTIONS = 1


def named_metrics(work: StepState) -> tuple[Metric, ...]:
    """Enforced metrics that the task names; of a plan's only step, those of the question too.

    A step of several has a part of the question, and the metric may belong to another one.
    """
    given = work.task.input
    text = work.task.effective_task
    if given.is_final_answer:
        text += f"\n{given.question}"
    return tuple(each for each in work.index.metric_names.named(text) if each.enforced)


def require_metrics(work: StepState, query: ApprovedQuery) -> None:
    """Check that the query computes every named metric as it is defined.

    Raises:
        MetricDisagreement: it does not; the model may correct it, once.
        AgentFailure: QueryError: the correction does not either.
    """
    if not work.named_metrics:
        return
    problem = metric_problem(work, query)
    work.task.trace.decision(
        "Named metrics", metrics=[each.name for each in work.named_metrics], disagreement=problem
    )
    if not problem:
        return
    if work.metric_corrections >= _MAX_CORRECTIONS:
        raise AgentFailure(
            AgentErrorType.QUERY_ERROR,
            f"The question names a metric, but its query computes something else: {problem}. "
            "Nothing was run, so that the same question always has the same number. "
            "Word the question differently, or correct the metric's definition.",
            {"reason": REASON, "disagreement": problem, "query": query.sql},
        )
    work.metric_corrections += 1
    raise MetricDisagreement(problem, query.sql)


def metric_problem(work: StepState, query: ApprovedQuery) -> str:
    """How the query differs from the definition of a named metric; empty if it does not."""
    for metric in work.named_metrics:
        problem = disagreement(query.sql, work.overview.dialect, metric, work.index.catalog)
        if problem:
            return problem
    return ""
