"""Clarification: whether a task is clear, questions to the user, assumptions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from bos_sql.steps.describe import describe_chosen, list_all_tables, undescribed
from bos_sql.steps.replies import ClarityCheck, Question, SchemaChoice
from bos_sql.steps.step_state import StepState, StillUnclear, ask_user

_MAX_READING_CHARS = 300
_LIKELIEST = "the likeliest meaning of the question"

# Names as only a schema has them: order_date, orders.amount.
_IDENTIFIER = re.compile(r"[^\W\d]\w*(?:[._]\w+)+")
_IN_BRACKETS = re.compile(r"[(\[`]([^()\[\]`]+)[)\]`]")


class Judgement(Protocol):
    """Part of a reply that judges whether the task is clear."""

    is_clear: bool
    clarifying_questions: list[Question]
    assumptions: list[str]


async def choose_tables(work: StepState) -> None:
    """Let a small model choose the tables and judge the task, before it writes a query.

    If the task seems unclear and it chooses tables without having seen their columns, it judges
    the task again with the columns, so that questions do not rest on guesses.

    Raises:
        ClarificationNeeded: there are questions to the user; no query was written.
        AgentFailure: ClarificationLimit.
        BosError: the model failed.
    """
    few = len(work.overview.tables) <= work.settings.small_schema_tables
    if not few:
        list_all_tables(work)
    choice = await work.model.required(work.prompts.choose(), SchemaChoice)
    trace_judgement(work, choice, tables=choice.tables)
    if not few:
        unseen = undescribed(work, choice.tables)
        describe_chosen(work, choice.tables)
        if unseen and not choice.is_clear and work.may_ask_user:
            second = await work.model.optional(work.prompts.clarity(), ClarityCheck)
            if second is not None:
                trace_judgement(work, second)
                _settle_choice(work, second)
                return
    _settle_choice(work, choice)


def settle(work: StepState, judgement: Judgement) -> None:
    """Ask the user, or record assumptions, which the answer then states.

    Raises:
        ClarificationNeeded: there are questions to the user.
        AgentFailure: ClarificationLimit: neither questions nor assumptions are left.
    """
    asked = [each for each in judgement.clarifying_questions if each.question.strip()]
    assumptions = [each for each in judgement.assumptions if each.strip()]
    if judgement.is_clear:
        _assume(work, assumptions)
        if assumptions:
            _state_assumptions(work, assumptions)
        return
    questions = grounded(work, asked)
    if work.may_ask_user and questions:
        ask_user(work, questions, assumptions)
    # Assumptions of an earlier reply suffice; those of a second reply are added.
    if not work.may_ask_user and not assumptions and not work.stated_assumptions:
        open_points = " ".join(each.question for each in questions)
        raise StillUnclear(
            "The question is still unclear after "
            f"{work.task.input.clarification_turn_count} rounds of questions, and nothing sensible "
            f"can be assumed. {open_points}".rstrip(),
        )
    _assume(work, assumptions)
    if assumptions:
        _state_assumptions(work, assumptions)


def state_reading(work: StepState, reading: str = "") -> None:
    """Add how an unclear task was understood to the answer, if that states no assumption yet."""
    if not work.stated_assumptions:
        _state_assumptions(work, [" ".join(reading.split())[:_MAX_READING_CHARS] or _LIKELIEST])


def _settle_choice(work: StepState, judgement: Judgement) -> None:
    settle(work, judgement)
    if not judgement.is_clear:
        state_reading(work)


def _state_assumptions(work: StepState, assumptions: Sequence[str]) -> None:
    work.stated_assumptions += [each for each in assumptions if each not in work.stated_assumptions]
    work.task.trace.decision("Proceeding on assumptions", assumptions=work.stated_assumptions)


def grounded(work: StepState, questions: Iterable[Question]) -> list[Question]:
    """``questions`` without options that name tables or fields that do not exist."""
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


def trace_judgement(work: StepState, judgement: Judgement, **data: object) -> None:
    """Trace the judgement of the task."""
    work.task.trace.decision(
        "The task is clear" if judgement.is_clear else "The task is unclear",
        questions=[each.question for each in judgement.clarifying_questions],
        assumptions=judgement.assumptions,
        **data,
    )


def _assume(work: StepState, assumptions: Sequence[str]) -> None:
    work.assumptions += [each for each in assumptions if each not in work.assumptions]


def _named(option: str) -> list[str]:
    """Schema names in an option: the whole option, or the parts in brackets."""
    parts = (option, *_IN_BRACKETS.findall(option))
    return [name for part in parts if _IDENTIFIER.fullmatch(name := part.strip())]
