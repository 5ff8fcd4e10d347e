"""Triage of a failed query: patch, ask the user, stop, or another draft."""

from __future__ import annotations

from bos_agentkit import AgentFailure
from bos_errors import AgentErrorType
from bos_llm import assistant
from bos_sql.prompts import feedback, json_text, metric_feedback
from bos_sql.steps.clarity import grounded
from bos_sql.steps.generate import Draft
from bos_sql.steps.replies import ErrorTriage
from bos_sql.steps.step_state import AttemptFailed, MetricDisagreement, StepState, ask_user

_MAX_MESSAGE_CHARS = 500


async def recover(work: StepState, failure: AttemptFailed) -> Draft | None:
    """Patched query for the next attempt; None: draft a new one from the error.

    Only errors of the database go to triage; those of guard and review go straight to the next
    draft.

    Raises:
        ClarificationNeeded: the step needs a reply of the user.
        AgentFailure: QueryError: no query can succeed.
    """
    say = metric_feedback if isinstance(failure, MetricDisagreement) else feedback
    work.messages.append(say(failure.error, failure.query))
    if not failure.from_database:
        return None
    triage = await work.model.optional(
        work.prompts.triage(work.pack, failure.query, failure.error), ErrorTriage
    )
    if triage is None:
        return None
    work.task.trace.decision(
        "Error triage", action=triage.action, error=failure.error, query=failure.query
    )
    if triage.action == "STOP":
        message = " ".join((triage.user_message or failure.error).split())[:_MAX_MESSAGE_CHARS]
        raise AgentFailure(
            AgentErrorType.QUERY_ERROR, message, {"error": failure.error, "query": failure.query}
        )
    questions = [each for each in triage.clarifying_questions if each.question.strip()]
    if triage.action == "ASK_CLARIFICATION" and questions and work.may_ask_user:
        ask_user(work, grounded(work, questions), work.assumptions)
    if triage.action == "RETRY_WITH_PATCH":
        return _patch(work, triage)
    return None


def _patch(work: StepState, triage: ErrorTriage) -> Draft | None:
    sql = (triage.patched_sql or "").strip()
    if not sql or _was_tried(work, sql):
        return None
    # If the patch fails too, the next draft needs it in the conversation.
    work.messages.append(assistant(json_text({"corrected_sql": sql})))
    return Draft(sql)


def _was_tried(work: StepState, sql: str) -> bool:
    """Whether the patch is a query that has failed before."""
    approved = work.guard.check(sql).approved
    return approved is not None and any(
        approved.sql == each["query"] for each in work.attempt_history
    )
