"""Step ``generate_query``: one model call for clarity, tables and query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos_agentkit import QUERY_ERROR, AgentFailure
from bos_llm import assistant
from bos_sql.steps.clarity import settle, tell_reading, trace_judgement
from bos_sql.steps.describe import describe_also, describe_chosen, undescribed
from bos_sql.steps.replies import GeneratedSql, QueryDraft

if TYPE_CHECKING:
    from bos_sql.steps.step_state import Work

_MAX_NOTES_CHARS = 500
_MAX_FOLLOWUPS = 2
# The messages before replies and feedback: the rules, and the schema with the task.
_OPENING = 2


@dataclass(frozen=True, slots=True)
class Draft:
    """A query that the guard has not checked."""

    sql: str


async def generate_query(work: Work) -> Draft:
    """Call the model for a query; feedback of failed attempts is in the conversation.

    Raises:
        ClarificationNeeded: there are questions to the user, and no query.
        AgentFailure: QueryError: the model replies that no query can answer the task;
            ClarificationLimit: the task is unclear after the last clarification turn.
        BosError: the model failed.
    """
    if work.ask.tier == "small":
        return await _simply(work)
    reply = await (_again(work) if work.messages else _first(work))
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
    return _draft(sql, reply.notes)


async def _first(work: Work) -> QueryDraft:
    """First draft; repeated if further tables have to be described or assumptions made."""
    reply = await _asked(work)
    missing = undescribed(work, reply.needs_tables)
    if missing or not (work.described or _says_something(reply)):
        reply = await _with_more_tables(work, reply, missing)
    return await _settled(work, reply)


async def _with_more_tables(work: Work, reply: QueryDraft, missing: tuple[str, ...]) -> QueryDraft:
    """Draft with the tables described that it needs; the first draft if that call fails."""
    if missing:
        describe_also(work, missing)
    else:
        describe_chosen(work, ())
    if not _says_something(reply):
        return await _asked(work)
    _begin(work)
    second = await work.ask.ask_if_possible(work.messages, QueryDraft)
    return _read(second) if second is not None and _says_something(second) else reply


async def _again(work: Work) -> QueryDraft:
    """Draft after feedback about a failed attempt, in the same conversation."""
    reply = _read(await work.ask.ask(work.messages, QueryDraft))
    missing = undescribed(work, reply.needs_tables)
    if missing and not _says_something(reply):
        describe_also(work, missing)
        reply = await _asked(work)
    return await _settled(work, reply)


async def _asked(work: Work) -> QueryDraft:
    _begin(work)
    return _read(await work.ask.ask(work.messages, QueryDraft))


def _read(reply: QueryDraft) -> QueryDraft:
    """Normalise a reply: with a question instead of a query, the task counts as unclear."""
    if reply.is_clear and not _sql(reply) and _asks(reply):
        return reply.model_copy(update={"is_clear": False})
    return reply


async def _settled(work: Work, reply: QueryDraft) -> QueryDraft:
    """Draft of a settled task; repeated if it has no query but now has assumptions."""
    _settle(work, reply)
    if not reply.is_clear and not _sql(reply) and work.assumptions:
        reply = await _asked(work)
        _settle(work, reply)
    return reply


def _settle(work: Work, reply: QueryDraft) -> None:
    """Ask the user, or let the answer state how an unclear task was understood."""
    trace_judgement(work, reply, tables=reply.used_tables)
    settle(work, reply)
    if not reply.is_clear and _sql(reply):
        tell_reading(work, reply.reasoning)


def _begin(work: Work) -> None:
    """Rebuild the opening of the conversation; replies and feedback are kept."""
    told = work.messages[_OPENING:]
    work.messages = [*work.prompts.draft(work.assumptions, may_ask=work.may_ask_user), *told]


def _says_something(reply: QueryDraft) -> bool:
    """Whether the reply holds a query or a question to the user."""
    return bool(_sql(reply)) or _asks(reply)


def _sql(reply: QueryDraft) -> str:
    return (reply.sql or "").strip()


def _asks(reply: QueryDraft) -> bool:
    return any(each.question.strip() for each in reply.clarifying_questions)


async def _simply(work: Work) -> Draft:
    """Draft by a small model, which has chosen tables and judged the task before."""
    if not work.messages:
        work.messages = work.prompts.generate(work.assumptions)
    reply = await work.ask.ask(work.messages, GeneratedSql)
    work.messages.append(assistant(reply.model_dump_json()))
    sql = (reply.sql or "").strip()
    work.task.trace.decision("generate_query", query=sql, notes=reply.notes)
    return _draft(sql, reply.notes)


def _draft(sql: str, notes: str) -> Draft:
    if not sql:
        told = " ".join(notes.split())[:_MAX_NOTES_CHARS]
        raise AgentFailure(
            QUERY_ERROR, f"No query on this database can answer that. {told}".rstrip()
        )
    return Draft(sql)
