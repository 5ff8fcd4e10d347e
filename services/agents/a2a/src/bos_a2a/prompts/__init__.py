"""Prompts of the A2A agent: functions from data to messages.

The system message is the file beside this one and never differs. What the remote agent says of
itself stands fenced as data.
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
from bos_agentkit.programs.prompts import differing_question, join_sections
from bos_chassis.values import render_value, to_value
from bos_llm import Message, prompt_file, system, user

if TYPE_CHECKING:
    from bos_a2a.remote.definition import Definition
    from bos_agentkit import AgentTask

_MESSAGE = prompt_file(__name__, "message")
_MAX_INPUT_CHARS = 8_000


def message_messages(task: AgentTask, name: str, definition: Definition) -> list[Message]:
    """Messages that request an ``AgentMessage``.

    Args:
        task: The step.
        name: Name of the specialist.
        definition: What the remote agent says of itself.
    """
    sections = [
        *task.user_sections,
        ("Agent", f"{name}\n{mark_untrusted(_shown(definition))}"),
        ("Question of the user", differing_question(task)),
        (SETTLED, task.settled if task.input.clarifications else ""),
        ("Dates", format_dates(task.input.context.fields, periods=True)),
        ("Entities", format_entities(task.input.entities) if task.input.entities else ""),
        ("Input of the step", _inputs(task)),
        ("Results of earlier steps", _earlier(task)),
        ("Task", task.effective_task),
    ]
    return [
        system(_MESSAGE.fill(untrusted_notice=UNTRUSTED_NOTICE)),
        user(join_sections(sections)),
    ]


def _shown(definition: Definition) -> str:
    lines = [definition.description, *(f"- {skill}" for skill in definition.skills)]
    return "\n".join(filter(None, lines)) or "It says nothing of itself."


def _inputs(task: AgentTask) -> str:
    given = task.arguments
    if not given:
        return ""
    text = "\n".join(f"{name} = {render_value(to_value(each))}" for name, each in given.items())
    return mark_untrusted(text[:_MAX_INPUT_CHARS])


def _earlier(task: AgentTask) -> str:
    if not task.input.dependency_outputs:
        return ""
    return mark_untrusted(format_dependencies(task.input.dependency_outputs))
