"""Prompts of the web agent: functions from data to messages.

The system messages are the files beside this one. Pages, with their titles and addresses, and what
earlier steps brought stand fenced as data: they are the words of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import (
    SETTLED,
    UNTRUSTED_NOTICE,
    format_dates,
    format_dependencies,
    format_entities,
    mark_untrusted,
)
from bos_llm import Message, prompt_file, system, user
from bos_llm.prompts import NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_agentkit import AgentTask
    from bos_web.evidence import Evidence

_STRATEGY = prompt_file(__name__, "strategy")
_ANSWER = prompt_file(__name__, "answer")
_MAX_PAGE_CHARS = 8_000
_MAX_PAGES_CHARS = 48_000
_MAX_ADDRESS_CHARS = 300


def strategy_messages(task: AgentTask) -> list[Message]:
    """Asks how to search."""
    return [
        system(_STRATEGY.fill(untrusted_notice=UNTRUSTED_NOTICE)),
        user(_sections(task)),
    ]


def answer_messages(
    task: AgentTask, evidence: Sequence[Evidence], direct_answer: str, *, most: int
) -> list[Message]:
    """Asks for the answer from pages.

    Args:
        task: The step.
        evidence: The pages, whose numbers are their places from 1.
        direct_answer: What the search service itself said.
        most: Pages that may be asked for.
    """
    share = max(1_000, min(_MAX_PAGE_CHARS, _MAX_PAGES_CHARS // max(1, len(evidence))))
    pages = "\n\n".join(_page(number, each, share) for number, each in enumerate(evidence, 1))
    hint = mark_untrusted(direct_answer) if direct_answer else ""
    return [
        system(_ANSWER.fill(untrusted_notice=UNTRUSTED_NOTICE, most=str(most))),
        user(_sections(task, ("Answer of the search service", hint), ("Pages", pages))),
    ]


def _sections(task: AgentTask, *more: tuple[str, str]) -> str:
    question = task.input.question
    dependencies = format_dependencies(task.input.dependency_outputs)
    entities = format_entities(task.input.entities)
    sections = (
        *task.user_sections,
        ("Question of the user", question if question != task.effective_task else ""),
        (SETTLED, task.settled if task.input.clarifications else ""),
        ("Dates", format_dates(task.input.context.fields, periods=False)),
        ("Entities", "" if entities == NOTHING else entities),
        # Fenced whether tainted or not: nothing of it is an instruction.
        ("Earlier steps", "" if dependencies == NOTHING else mark_untrusted(dependencies)),
        *more,
        ("Task", task.effective_task),
    )
    return "\n\n".join(f"### {heading}\n{body}" for heading, body in sections if body)


def _page(number: int, page: Evidence, limit: int) -> str:
    kind = "whole page" if page.text else "excerpt"
    about = ", ".join(
        part for part in (page.title, page.url[:_MAX_ADDRESS_CHARS], page.published[:40]) if part
    )
    shown = page.shown
    text = shown if len(shown) <= limit else shown[:limit] + "…"
    fenced = mark_untrusted(f"({about})\n{text}")
    return f"Page {number}, {kind}\n{fenced}"
