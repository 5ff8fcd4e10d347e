"""Prompt sections shared by agents that write programs; results as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from bos_agentkit.programs.variables import Variable, describe, without_repeated
from bos_agentkit.prompts import Section, format_entities
from bos_agentkit.task import AgentTask
from bos_chassis.values import to_value, value_to_json
from bos_llm.prompts import NOTHING, SETTLED, mark_untrusted

MAX_RESULT_CHARS: Final = 8_000


def program_sections(task: AgentTask, variables: Sequence[Variable]) -> list[Section]:
    """Prompt sections for writing a program, the task last: headings with texts, maybe empty."""
    entities = format_entities(task.input.entities)
    return [
        *task.user_sections,
        ("Question of the user", differing_question(task)),
        (SETTLED, task.settled if task.input.clarifications else ""),
        ("Entities", "" if entities == NOTHING else entities),
        ("Variables", mark_untrusted(describe(without_repeated(variables)))),
        ("Task", task.effective_task),
        ("Instructions", "Write the program that solves the task with these variables."),
    ]


def differing_question(task: AgentTask) -> str:
    """The user's question where it differs from the task; else empty."""
    return task.input.question if task.input.question != task.effective_task else ""


def join_sections(sections: Iterable[Section]) -> str:
    """Join the non-empty sections, each under its heading."""
    return "\n\n".join(f"### {heading}\n{body}" for heading, body in sections if body)


def result_json(value: Any) -> str:
    """Result of a program as one line of JSON, truncated to 8,000 characters."""
    text = json.dumps(value_to_json(to_value(value)), ensure_ascii=False)
    if len(text) <= MAX_RESULT_CHARS:
        return text
    return f"{text[:MAX_RESULT_CHARS]}… ({len(text)} characters in all)"
