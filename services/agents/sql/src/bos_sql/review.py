"""Steps ``safety_check`` and ``check_query``: the guard, the reviewing model, the guard again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_sql.prompts import review_messages
from bos_sql.replies import QueryReview
from bos_sql.work import AttemptFailed, Work, refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos_sql.guard import ApprovedQuery
    from bos_sqlguard import Dialect


def safety_check(work: Work, variants: Mapping[Dialect, str]) -> ApprovedQuery:
    """Pass every variant through the guard.

    Raises:
        AgentFailure: QueryError: the query is blocked; ends the step at once (SPEC D-18).
        AttemptFailed: the query cannot be read and may be corrected.
    """
    decision = work.guard.check(variants)
    sql = variants[work.overview.dialect]
    work.task.trace.decision(
        "safety_check",
        is_safe=decision.approved is not None,
        violations=[dict(each) for each in decision.violations],
        user_message=decision.user_message,
        withheld=list(decision.withheld),
    )
    if decision.approved is not None:
        return decision.approved
    if decision.is_syntax_error:
        raise AttemptFailed(decision.user_message, sql)
    raise refusal(decision, sql)


async def check_query(work: Work, approved: ApprovedQuery) -> ApprovedQuery:
    """Have the model review the query; a corrected one passes the guard again (SPEC D-13).

    Without a review the query that the guard approved stands.

    Raises:
        AgentFailure: QueryError: the corrected query is blocked.
        AttemptFailed: the review found the query wrong and offers nothing better.
    """
    dialect = work.overview.dialect
    review = await work.ask.ask_if_possible(
        review_messages(
            work.task, dialect, work.pack, approved.sql, work.settings.max_schema_chars
        ),
        QueryReview,
    )
    corrected = ((review and review.corrected_sql) or "").strip()
    work.task.trace.decision(
        "check_query",
        reviewed=review is not None,
        is_correct=review.is_correct if review else None,
        corrected=bool(review and not review.is_correct and corrected),
        reason=review.reason if review else "",
    )
    if review is None or review.is_correct:
        return approved
    if not corrected:
        raise AttemptFailed(f"The review found it wrong: {review.reason}", approved.sql)
    # The other variants say what the query said before it was corrected.
    return safety_check(work, {dialect: corrected})
