"""Verified queries as examples in the prompts of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_sql.grounding.examples import chosen_examples, shown_text

if TYPE_CHECKING:
    from bos_sql.metrics import SqlMetrics
    from bos_sql.steps.step_state import StepState


def take_examples(work: StepState, metrics: SqlMetrics | None) -> None:
    """Choose the examples of the step, before its prompts are made; what became of each is traced.

    The gateway has tainted the step if another user wrote one of them.
    """
    task, settings = work.task, work.settings
    given = task.input.verified_queries
    if not given or not settings.verified_queries:
        return
    # A step of several has a part of the question, which may be like another one's.
    also = [task.input.question] if task.input.is_final_answer else []
    shown, outcomes = chosen_examples(
        given,
        [task.effective_task, *also],
        work.overview,
        work.guard,
        most=settings.verified_queries,
        max_chars=settings.max_verified_chars,
    )
    work.examples = shown_text(shown)
    task.trace.message(
        "verified_queries",
        shown=[each.query_id for each in shown],
        left_out={key: outcome for key, outcome in outcomes.items() if outcome != "shown"},
    )
    if metrics is not None:
        for outcome in outcomes.values():
            metrics.examples.labels(outcome).inc()
