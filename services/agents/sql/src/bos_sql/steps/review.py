"""Steps ``safety_check`` and ``check_query``: the guard, and the model's review of the query.

The review runs concurrently with the approved query, which is read-only, and ends before the
result is used. A corrected query runs if the guard passes it and it reads a table of the approved
query; its result replaces the first one unless it is empty and the first one is not.
"""

from __future__ import annotations

import asyncio

from bos_agentkit import AgentFailure
from bos_errors import BosError
from bos_sql.steps.execute import QueryResult, execute_query, parse_results
from bos_sql.steps.guard import ApprovedQuery
from bos_sql.steps.metrics import metric_problem
from bos_sql.steps.replies import QueryReview
from bos_sql.steps.review_need import review_reasons
from bos_sql.steps.step_state import AttemptFailed, StepState, refusal

_MAX_CHECKS_CHARS = 500
# The result is available meanwhile, and the rest of the step's time is needed for the answer.
_SHARE_OF_TIME = 0.5


def safety_check(work: StepState, sql: str) -> ApprovedQuery:
    """Check the query with the guard.

    Raises:
        AgentFailure: QueryError: the query is blocked; ends the step at once.
        AttemptFailed: the query cannot be parsed and may be corrected.
    """
    decision = work.guard.check(sql)
    work.task.trace.decision(
        "safety_check",
        is_safe=decision.approved is not None,
        violations=[dict(each) for each in decision.violations],
        user_message=decision.user_message,
    )
    if decision.approved is not None:
        return decision.approved
    if decision.is_syntax_error:
        raise AttemptFailed(decision.user_message, sql)
    raise refusal(decision, sql)


async def run_reviewed(work: StepState, approved: ApprovedQuery) -> QueryResult:
    """Run the query, and concurrently review it where a mistake is likely.

    Raises:
        AttemptFailed: the database refused it, and no correction works.
        AgentFailure, BosError: as :func:`execute_query`.
    """
    reasons, skipped = review_reasons(work, approved.sql)
    if not reasons:
        work.task.trace.decision("check_query", state="skipped", reason=skipped)
        return await _run(work, approved)
    work.task.trace.decision("check_query", state="beside execute_query", reasons=list(reasons))
    review = asyncio.create_task(_review(work, approved), name="review of a query")
    try:
        found = await _run_or_fail(work, approved)
        correction = _correction(work, approved, await review)
    finally:
        review.cancel()
        await asyncio.gather(review, return_exceptions=True)
    if correction is not None:
        return await _run_corrected(work, correction, found)
    if isinstance(found, AttemptFailed):
        raise found
    return found


async def _run(work: StepState, approved: ApprovedQuery) -> QueryResult:
    return parse_results(work, approved, await execute_query(work, approved))


async def _run_or_fail(work: StepState, approved: ApprovedQuery) -> QueryResult | AttemptFailed:
    try:
        return await _run(work, approved)
    except AttemptFailed as failure:
        return failure


async def _run_corrected(
    work: StepState, correction: ApprovedQuery, before: QueryResult | AttemptFailed
) -> QueryResult:
    """Run the corrected query; returns its result, or the first one where that is better."""
    try:
        result = await _run(work, correction)
    except AttemptFailed as failure:
        if isinstance(before, AttemptFailed):
            work.last_query = correction.sql
            raise
        error = failure.error
    except BosError as failure:
        if isinstance(before, AttemptFailed):
            raise
        error = failure.message
    else:
        if isinstance(before, AttemptFailed) or result.has_values or not before.has_values:
            work.last_query = correction.sql
            return result
        work.task.trace.message(
            "The corrected query found nothing; the first result stands", query=correction.sql
        )
        return before
    work.task.trace.message("The corrected query failed; the first result stands", error=error)
    return before


async def _review(work: StepState, approved: ApprovedQuery) -> QueryReview | None:
    messages = work.prompts.review(approved.sql, work.assumptions)
    return await work.model.optional(messages, QueryReview, share=_SHARE_OF_TIME)


def _correction(
    work: StepState, approved: ApprovedQuery, review: QueryReview | None
) -> ApprovedQuery | None:
    """Corrected query of the review, if the guard passes it; None: the query stands."""
    if review is None:
        work.task.trace.decision("Review of the query", reviewed=False)
        return None
    corrected = (review.corrected_sql or "").strip()
    correction, verdict = None, "correct"
    if not review.is_correct:
        correction, verdict = _judged(work, approved, corrected)
    work.task.trace.decision(
        "Review of the query",
        reviewed=True,
        is_correct=review.is_correct,
        checks=review.checks[:_MAX_CHECKS_CHARS],
        verdict=verdict,
        corrected_sql=corrected if correction is None and not review.is_correct else "",
    )
    return correction


def _judged(
    work: StepState, approved: ApprovedQuery, corrected: str
) -> tuple[ApprovedQuery | None, str]:
    if not corrected:
        return None, "found wrong without a correction; the query stands"
    try:
        correction = safety_check(work, corrected)
    except (AttemptFailed, AgentFailure):
        return None, "the correction did not pass the guard; the query stands"
    if correction.sql == approved.sql:
        return None, "the correction is the same query"
    if not correction.used_tables:
        return None, "the correction reads no table; the query stands"
    if approved.used_tables and not set(correction.used_tables) & set(approved.used_tables):
        return None, "the correction reads none of the query's tables; the query stands"
    if problem := metric_problem(work, correction):
        return None, f"in the correction, {problem}; the query stands"
    return correction, "corrected"
