"""Step ``generate_query``: one model call for clarity, tables and query."""

from __future__ import annotations

from dataclasses import dataclass

from bos_agentkit import AgentFailure
from bos_errors import AgentErrorType
from bos_llm import assistant
from bos_sql.steps.clarity import settle, state_reading, trace_judgement
from bos_sql.steps.describe import describe_also, describe_chosen, undescribed
from bos_sql.steps.replies import GeneratedSql, QueryDraft
from bos_sql.steps.step_state import NotInSource, StepState

_MAX_NOTES_CHARS = 500
_MAX_FOLLOWUPS = 2
# The messages before replies and feedback: the rules, and the schema with the task.
_OPENING = 2


@dataclass(frozen=True, slots=True)
class Draft:
    """A query that the guard has not checked."""

    sql: str


async def generate_query(work: StepState) -> Draft:
    """Call the model for a query; feedback of failed attempts is in the conversation.

    Raises:
        ClarificationNeeded: there are questions to the user, and no query.
        NotInSource: the model replies that no query can answer the task, and why.
        AgentFailure: QueryError: the model gives neither a query nor a reason;
            ClarificationLimit: the task is unclear after the last clarification turn.
        BosError: the model failed.
    """
    if work.model.tier == "small":
        return await _draft_by_small_model(work)
    reply = await (_draft_after_failure(work) if work.messages else _first_draft(work))
    work.messages.append(assistant(reply.model_dump_json()))
    work.followups = [each for each in reply.followups if each.strip()][:_MAX_FOLLOWUPS]
    sql = _sql(reply)
    work.task.trace.decision(
        "generate_query",
        query=sql,
        reasoning=reply.reasoning,
        used_tables=reply.used_tables,
        notes=reply.notes,
        assumptions=reply.assumptions,
        merged=["choice of tables", "clarity"],
    )
    return _draft_of(sql, reply.notes)


async def _first_draft(work: StepState) -> QueryDraft:
    """First draft; repeated if further tables have to be described or assumptions made."""
    reply = await _request_draft(work)
    missing = undescribed(work, reply.needs_tables)
    if missing or not (work.described or _is_usable(reply)):
        reply = await _with_more_tables(work, reply, missing)
    return await _settled_draft(work, reply)


async def _with_more_tables(
    work: StepState, reply: QueryDraft, missing: tuple[str, ...]
) -> QueryDraft:
    """Draft with the tables described that it needs; the first draft if that call fails."""
    if missing:
        describe_also(work, missing)
    else:
        describe_chosen(work, ())
    if not _is_usable(reply):
        return await _request_draft(work)
    _open_conversation(work)
    second = await work.model.optional(work.messages, QueryDraft)
    return _normalised(second) if second is not None and _is_usable(second) else reply


async def _draft_after_failure(work: StepState) -> QueryDraft:
    """Draft after feedback about a failed attempt, in the same conversation."""
    reply = _normalised(await work.model.required(work.messages, QueryDraft))
    missing = undescribed(work, reply.needs_tables)
    if missing and not _is_usable(reply):
        describe_also(work, missing)
        reply = await _request_draft(work)
    return await _settled_draft(work, reply)


async def _request_draft(work: StepState) -> QueryDraft:
    _open_conversation(work)
    return _normalised(await work.model.required(work.messages, QueryDraft))


def _normalised(reply: QueryDraft) -> QueryDraft:
    """Normalise a reply: with a question instead of a query, the task counts as unclear."""
    if reply.is_clear and not _sql(reply) and _has_question(reply):
        return reply.model_copy(update={"is_clear": False})
    return reply


async def _settled_draft(work: StepState, reply: QueryDraft) -> QueryDraft:
    """Draft of a settled task; repeated if it has no query but now has assumptions."""
    _settle(work, reply)
    if not reply.is_clear and not _sql(reply) and work.assumptions:
        reply = await _request_draft(work)
        _settle(work, reply)
    return reply


def _settle(work: StepState, reply: QueryDraft) -> None:
    """Ask the user, or let the answer state how an unclear task was understood."""
    trace_judgement(work, reply, tables=reply.used_tables)
    settle(work, reply)
    if not reply.is_clear and _sql(reply):
        state_reading(work, reply.reasoning)


def _open_conversation(work: StepState) -> None:
    """Rebuild the opening of the conversation; replies and feedback are kept."""
    later = work.messages[_OPENING:]
    work.messages = [*work.prompts.draft(work.assumptions, may_ask=work.may_ask_user), *later]


def _is_usable(reply: QueryDraft) -> bool:
    """Whether the reply holds a query or a question to the user."""
    return bool(_sql(reply)) or _has_question(reply)


def _sql(reply: QueryDraft) -> str:
    return (reply.sql or "").strip()


def _has_question(reply: QueryDraft) -> bool:
    return any(each.question.strip() for each in reply.clarifying_questions)


async def _draft_by_small_model(work: StepState) -> Draft:
    """Draft by a small model, which has chosen tables and judged the task before."""
    if not work.messages:
        work.messages = work.prompts.generate(work.assumptions)
    reply = await work.model.required(work.messages, GeneratedSql)
    work.messages.append(assistant(reply.model_dump_json()))
    sql = (reply.sql or "").strip()
    work.task.trace.decision("generate_query", query=sql, notes=reply.notes)
    return _draft_of(sql, reply.notes)


def _draft_of(sql: str, notes: str) -> Draft:
    if not sql and not notes.strip():
        text = "The model wrote no query, and does not say why."
        raise AgentFailure(AgentErrorType.QUERY_ERROR, text)
    if not sql:
        raise NotInSource(" ".join(notes.split())[:_MAX_NOTES_CHARS])
    return Draft(sql)
