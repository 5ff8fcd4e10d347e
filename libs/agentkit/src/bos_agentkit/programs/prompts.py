"""What prompts of agents that write programs share: the task's sections, and results as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from bos_agentkit.programs.variables import describe, not_repeated
from bos_agentkit.prompts import format_entities
from bos_chassis.values import to_value, value_to_json
from bos_llm.prompts import NOTHING, SETTLED, mark_untrusted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bos_agentkit.programs.variables import Variable
    from bos_agentkit.task import AgentTask

MAX_SHOWN_RESULT_CHARS: Final = 8_000
Section = tuple[str, str]


def program_sections(task: AgentTask, variables: Sequence[Variable]) -> list[Section]:
    """What a program is to be written for, the task last: heading and text, which may be empty."""
    entities = format_entities(task.input.entities)
    return [
        ("Question of the user", question_beside(task)),
        (SETTLED, task.settled if task.input.clarifications else ""),
        ("Entities", "" if entities == NOTHING else entities),
        ("Variables", mark_untrusted(describe(not_repeated(variables)))),
        ("Task", task.effective_task),
        ("Instructions", "Write the program that solves the task with these variables."),
    ]


def question_beside(task: AgentTask) -> str:
    """The user's question, if the task is not the same."""
    return task.input.question if task.input.question != task.effective_task else ""


def join_sections(sections: Iterable[Section]) -> str:
    """Sections with content, each under its heading."""
    return "\n\n".join(f"### {heading}\n{body}" for heading, body in sections if body)


def shown_result(value: Any) -> str:
    """A program's result as JSON on one line, cut to 8,000 characters."""
    text = json.dumps(value_to_json(to_value(value)), ensure_ascii=False)
    if len(text) <= MAX_SHOWN_RESULT_CHARS:
        return text
    return f"{text[:MAX_SHOWN_RESULT_CHARS]}… ({len(text)} characters in all)"
