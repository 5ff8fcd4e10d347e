"""Prompts of the document agent: functions from data to messages.

The system messages are the files beside this one and never differ. Passages, with the names of
their documents, stand fenced as data: they are the words of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import SETTLED, UNTRUSTED_NOTICE, format_dates, mark_untrusted
from bos_chassis.values import render_value
from bos_llm import Message, prompt_file, system, user
from bos_rag.passages import PREVIEW_CHARS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.documents.v1 import Passage
    from bos_agentkit import AgentTask

_RANK = prompt_file(__name__, "rank")
_ANSWER = prompt_file(__name__, "answer")
_MAX_PASSAGE_CHARS = 6_000
_MAX_NAME_CHARS = 200
_MAX_INPUT_CHARS = 2_000
LISTS, TEXTS = ("document_types", "topics"), ("section", "date_from", "date_to")
"""Filters of the search, by the type of their inputs."""
SEARCH = frozenset({"query", *LISTS, *TEXTS})
"""Inputs that say how to search; all others bring what earlier steps found."""


def rank_messages(task: AgentTask, passages: Sequence[Passage]) -> list[Message]:
    """Asks for an order of the passages, from their beginnings."""
    shown = "\n\n".join(
        _passage(number, passage, PREVIEW_CHARS) for number, passage in enumerate(passages, 1)
    )
    return [
        system(_RANK.fill(untrusted_notice=UNTRUSTED_NOTICE)),
        user(_sections(task, shown)),
    ]


def answer_messages(task: AgentTask, passages: Sequence[Passage]) -> list[Message]:
    """Asks for the answer from whole passages."""
    shown = "\n\n".join(
        _passage(number, passage, _MAX_PASSAGE_CHARS) for number, passage in enumerate(passages, 1)
    )
    return [
        system(_ANSWER.fill(untrusted_notice=UNTRUSTED_NOTICE)),
        user(_sections(task, shown)),
    ]


def _sections(task: AgentTask, passages: str) -> str:
    question = task.input.question
    sections = (
        *task.user_sections,
        ("Question of the user", question if question != task.effective_task else ""),
        (SETTLED, task.settled if task.input.clarifications else ""),
        ("Dates", format_dates(task.input.context.fields, periods=False)),
        ("Inputs from earlier steps", _inputs(task)),
        ("Passages", passages),
        ("Task", task.effective_task),
    )
    return "\n\n".join(f"### {heading}\n{body}" for heading, body in sections if body)


def _inputs(task: AgentTask) -> str:
    given = task.input.sub_task_input
    lines = [
        f"{name}: {render_value(given[name])[:_MAX_INPUT_CHARS]}"
        for name in sorted(given)
        if name not in SEARCH
    ]
    return mark_untrusted("\n".join(lines)) if lines else ""


def _passage(number: int, passage: Passage, limit: int) -> str:
    chunk = passage.chunk
    place = [
        chunk.document_name[:_MAX_NAME_CHARS],
        f"page {chunk.first_page}" if chunk.first_page else "",
        " > ".join(chunk.section_path)[:_MAX_NAME_CHARS],
        chunk.document_date,
    ]
    text = chunk.text if len(chunk.text) <= limit else chunk.text[:limit] + "…"
    about = ", ".join(part for part in place if part)
    fenced = mark_untrusted(f"({about})\n{text}")
    return f"Passage {number}\n{fenced}"
