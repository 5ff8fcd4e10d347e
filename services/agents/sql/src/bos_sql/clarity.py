"""Clarify first: which tables matter, and whether the task is clear (SPEC D-03, D-04, D-08)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import AgentFailure
from bos_sql.metadata import GroundingPack, call_get_schema
from bos_sql.prompts import choose_messages, clarity_messages
from bos_sql.replies import ClarityCheck, SchemaChoice
from bos_sql.work import Work, ask_user

if TYPE_CHECKING:
    from collections.abc import Sequence

CLARIFICATION_LIMIT = "ClarificationLimit"
"""``AgentError.type`` of a task that stayed unclear and offers nothing to assume (DEC-02)."""


async def ground(work: Work) -> None:
    """Choose the tables, settle what the task means, and leave pack and assumptions in ``work``.

    Few tables are described all at once. Of many, the model chooses by the overview; only if the
    task then seems unclear is it asked again with the columns in sight, so that no question is
    built on a guess.

    Raises:
        ClarificationNeeded: the user is to be asked; no query was written.
        AgentFailure: ClarificationLimit; or QueryError or ConfigurationError, as mcp_db says.
    """
    limit = work.settings.max_schema_chars
    names = [table.name for table in work.overview.tables]
    few = len(names) <= work.settings.small_schema_tables
    if few and names:
        work.pack = await _describe(work, names)
    choice = await work.ask.ask(
        choose_messages(work.task, work.overview, work.pack if few else None, limit), SchemaChoice
    )
    _trace(work, choice, tables=choice.tables)
    if not few:
        work.pack = await _describe(work, _chosen(work, choice.tables))
        if not choice.is_clear and work.may_ask_user:
            second = await work.ask.ask_if_possible(
                clarity_messages(work.task, work.pack, limit), ClarityCheck
            )
            if second is not None:
                _trace(work, second)
                _settle(work, second)
                return
    _settle(work, choice)


def _settle(work: Work, judgement: SchemaChoice | ClarityCheck) -> None:
    questions = [each for each in judgement.clarifying_questions if each.question.strip()]
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


def _chosen(work: Work, wanted: Sequence[str]) -> tuple[str, ...]:
    """The tables to describe: the model's, or else those the task names, or else the first ones."""
    overview = work.overview
    words = work.task.effective_task.casefold()
    named = [table.name for table in overview.tables if table.name.casefold() in words]
    candidates = overview.known(wanted) or tuple(named) or overview.known(_names(work))
    return candidates[: work.settings.max_described_tables]


def _names(work: Work) -> list[str]:
    return [table.name for table in work.overview.tables]


async def _describe(work: Work, tables: Sequence[str]) -> GroundingPack:
    if not tables:
        return GroundingPack()
    return await call_get_schema(work.task, work.settings, work.overview, tables)


def _trace(work: Work, judgement: SchemaChoice | ClarityCheck, **data: object) -> None:
    work.task.trace.decision(
        "The task is clear" if judgement.is_clear else "The task is unclear",
        questions=[each.question for each in judgement.clarifying_questions],
        assumptions=judgement.assumptions,
        **data,
    )
