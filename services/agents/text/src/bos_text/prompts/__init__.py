"""Prompts of the text agent: functions from data to messages.

The system message is the file beside this one, with the job of one tool. The texts of any author
stand fenced as data, and so do wordings of the plan that outputs of earlier steps may have
become part of: the task alone says what is to be done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import (
    SETTLED,
    UNTRUSTED_NOTICE,
    format_dates,
    format_entities,
    mark_untrusted,
)
from bos_llm import Message, prompt_file, system, user
from bos_llm.prompts import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bos_agentkit import AgentTask
    from bos_text.sources import Source

_WORK = prompt_file(__name__, "work")
_NOTE_JOB = (
    "You read one part of a long text. Note from it all that the work on the whole text needs, "
    "with figures, names and dates exactly; leave the notes empty if nothing matters."
)


def work_messages(
    task: AgentTask, job: str, texts: Sequence[Source], wishes: str = "", place: str = ""
) -> list[Message]:
    """Messages that ask for the work on ``texts``.

    Args:
        task: The step.
        job: What the tool does, in one or two sentences of our own.
        texts: What is worked on; none: the task holds it.
        wishes: Arguments of the plan in words.
        place: Which part of a long text this is; empty for the whole.
    """
    return _messages(task, job, texts, wishes, place)


def note_messages(
    task: AgentTask, job: str, part: Source, wishes: str, place: str
) -> list[Message]:
    """Messages that request notes on one part of a long text."""
    return _messages(task, f"{_NOTE_JOB} The work on the whole: {job}", [part], wishes, place)


def again(messages: Sequence[Message], problem: str) -> list[Message]:
    """The same messages with the problem of the first reply."""
    return [*messages, user(f"{mark_untrusted(problem)}\nDo it again without that.")]


def _messages(
    task: AgentTask, job: str, texts: Sequence[Source], wishes: str, place: str
) -> list[Message]:
    question = task.input.question
    entities = format_entities(task.input.entities)
    sections = (
        *task.user_sections,
        ("Question of the user", question if question != task.effective_task else ""),
        (SETTLED, task.settled if task.input.clarifications else ""),
        ("Dates", format_dates(task.input.context.fields, periods=False)),
        ("Entities", "" if entities == NOTHING else entities),
        ("Texts", _shown(texts)),
        ("Part", place),
        # Outputs of earlier steps may stand in it.
        ("Details of the plan", _fenced_after_others(task, wishes)),
        ("Task", task.effective_task),
    )
    shown = "\n\n".join(f"### {heading}\n{body}" for heading, body in sections if body)
    return [system(_WORK.fill(job=job, untrusted_notice=UNTRUSTED_NOTICE)), user(shown)]


def _shown(texts: Iterable[Source]) -> str:
    return "\n".join(mark_untrusted(f"({each.name})\n{each.text}") for each in texts)


def _fenced_after_others(task: AgentTask, wishes: str) -> str:
    return mark_untrusted(wishes) if wishes and task.input.dependency_outputs else wishes
