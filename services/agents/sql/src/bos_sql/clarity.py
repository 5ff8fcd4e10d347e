"""Clarify first: which tables matter, and whether the task is clear (SPEC D-03, D-04, D-08)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bos_agentkit import AgentFailure
from bos_sql.grounding.pack import GroundingPack
from bos_sql.prompts import choose_messages, clarity_messages
from bos_sql.replies import ClarityCheck, Question, SchemaChoice
from bos_sql.work import Work, ask_user

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bos_sql.metadata import TableSummary

CLARIFICATION_LIMIT = "ClarificationLimit"
"""``AgentError.type`` of a task that stayed unclear and offers nothing to assume (DEC-02)."""

_TRACED_HITS = 10
_MAX_QUERY_CHARS = 4_000
_MAX_QUERY_MESSAGES = 4
# What only a schema would call something: order_date, orders.amount.
_IDENTIFIER = re.compile(r"[^\W\d]\w*(?:[._]\w+)+")
_IN_BRACKETS = re.compile(r"[(\[`]([^()\[\]`]+)[)\]`]")


async def ground(work: Work) -> None:
    """Choose the tables, settle what the task means, and leave pack and assumptions in ``work``.

    Few tables are described all at once. Of many, the metadata index suggests some, which are
    described for the model's choice; only if it chooses others and the task seems unclear is it
    asked again with their columns in sight, so that no question is built on a guess.

    Raises:
        ClarificationNeeded: the user is to be asked; no query was written.
        AgentFailure: ClarificationLimit; or QueryError or ConfigurationError, as mcp_db says.
    """
    limit = work.settings.max_schema_chars
    names = [table.name for table in work.overview.tables]
    few = len(names) <= work.settings.small_schema_tables
    query = _query(work)
    suggested = _suggested(work, query, names, few=few)
    work.pack = work.index.pack(suggested, query)
    if few and names:
        _trace_pack(work)
    choice = await work.ask.ask(
        choose_messages(work.task, work.overview, _listed(work, query), work.pack, limit),
        SchemaChoice,
    )
    _trace(work, choice, tables=choice.tables)
    if not few:
        chosen = _chosen(work, choice.tables, suggested)
        work.pack = work.index.pack(chosen, query) if chosen else GroundingPack()
        _trace_pack(work)
        unseen = not set(chosen) <= set(suggested)
        if unseen and not choice.is_clear and work.may_ask_user:
            second = await work.ask.ask_if_possible(
                clarity_messages(work.task, work.pack, limit), ClarityCheck
            )
            if second is not None:
                _trace(work, second)
                _settle(work, second)
                return
    _settle(work, choice)


def _query(work: Work) -> str:
    """What the index is asked: the task, or what was said around it if the task names nothing."""
    task, given = work.task.effective_task, work.task.input
    if work.index.ranked_tables(task):
        return task[:_MAX_QUERY_CHARS]
    said = [each.content for each in list(given.conversation_history)[-_MAX_QUERY_MESSAGES:]]
    said += [turn.reply for turn in given.clarifications]
    return " ".join([task, given.question, *said])[:_MAX_QUERY_CHARS]


def _suggested(work: Work, query: str, names: Sequence[str], *, few: bool) -> tuple[str, ...]:
    """The tables to describe before the choice: all of few, else those that the index finds."""
    hits = work.index.search_metadata(query, _TRACED_HITS)
    found = (
        tuple(names) if few else work.index.suggested_tables(query, work.settings.suggested_tables)
    )
    work.task.trace.message(
        "search_metadata",
        query=query,
        hits=[
            {"doc_id": hit.doc.doc_id, "kind": hit.doc.kind, "score": round(hit.score, 2)}
            for hit in hits
        ],
        suggested_tables=list(found),
    )
    # The overview is older than the index by one call, in which a table may have gone.
    return tuple(name for name in found if name in work.index)


def _listed(work: Work, query: str) -> tuple[TableSummary, ...]:
    """The tables that the overview shows with their meaning: all, or of many the relevant ones."""
    tables, limit = work.overview.tables, work.settings.max_listed_tables
    if len(tables) <= limit:
        return tables
    relevant = frozenset(work.index.ranked_tables(query)[:limit])
    return tuple(table for table in tables if table.name in relevant)


def _settle(work: Work, judgement: SchemaChoice | ClarityCheck) -> None:
    asked = [each for each in judgement.clarifying_questions if each.question.strip()]
    questions = grounded(work, asked)
    assumptions = [each for each in judgement.assumptions if each.strip()]
    if judgement.is_clear or (not questions and work.may_ask_user):
        work.assumptions.extend(assumptions)
        return
    if work.may_ask_user:
        ask_user(work, questions, assumptions)
    if not assumptions:
        open_points = " ".join(each.question for each in questions)
        raise AgentFailure(
            CLARIFICATION_LIMIT,
            "The question is still unclear after "
            f"{work.task.input.clarification_turn_count} rounds of questions, and nothing sensible "
            f"can be assumed. {open_points}".rstrip(),
        )
    work.assumptions.extend(assumptions)
    work.told_assumptions.extend(assumptions)
    work.task.trace.decision("Proceeding on assumptions", assumptions=assumptions)


def grounded(work: Work, questions: Iterable[Question]) -> list[Question]:
    """``questions`` without options that name tables or fields that do not exist (SPEC D-03)."""
    invented: list[str] = []

    def exists(option: str) -> bool:
        if all(work.index.names(name) for name in _named(option)):
            return True
        invented.append(option.strip())
        return False

    grounded = [
        each.model_copy(update={"options": [option for option in each.options if exists(option)]})
        for each in questions
    ]
    if invented:
        work.task.trace.decision("Options that name nothing here were dropped", options=invented)
    return grounded


def _named(option: str) -> list[str]:
    """What an option names of the schema: all of it, or what stands in brackets."""
    parts = (option, *_IN_BRACKETS.findall(option))
    return [name for part in parts if _IDENTIFIER.fullmatch(name := part.strip())]


def _chosen(work: Work, wanted: Sequence[str], suggested: Sequence[str]) -> tuple[str, ...]:
    """The tables to describe: the model's, or else those suggested, or else the first ones.

    Tables through which the chosen ones have to be joined come along.
    """
    overview, limit = work.overview, work.settings.max_described_tables
    words = work.task.effective_task.casefold()
    names = [table.name for table in overview.tables]
    named = [name for name in names if name.casefold() in words]
    candidates = overview.known(wanted) or tuple(named) or tuple(suggested) or tuple(names)
    known = [name for name in candidates if name in work.index]
    return work.index.tied(known[:limit])[:limit]


def _trace_pack(work: Work) -> None:
    """What the query is grounded on, for debugging (SPEC D-12, T-03, A-23)."""
    pack = work.pack
    work.task.trace.message(
        "call_get_schema",
        tables=list(pack.suggested_tables),
        citations=[citation.doc_id for citation in pack.citations],
    )
    work.task.trace.message("grounding_pack", **pack.traced())


def _trace(work: Work, judgement: SchemaChoice | ClarityCheck, **data: object) -> None:
    work.task.trace.decision(
        "The task is clear" if judgement.is_clear else "The task is unclear",
        questions=[each.question for each in judgement.clarifying_questions],
        assumptions=judgement.assumptions,
        **data,
    )
