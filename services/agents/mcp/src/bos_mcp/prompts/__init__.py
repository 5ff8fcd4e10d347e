"""Prompts of the MCP agent: functions from data to messages.

The system messages are the files beside this one and never differ. Descriptions of tools and their
results stand fenced as data: they are the words of the server.
"""

from __future__ import annotations

import json
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
    from collections.abc import Sequence

    from bos_agentkit import AgentTask
    from bos_mcp.calls import MadeCall
    from bos_mcp.tools import ServerTool

_NEXT = prompt_file(__name__, "next")
_SUMMARY = prompt_file(__name__, "summary")
_MAX_TOOLS_CHARS = 24_000
_MAX_SCHEMA_CHARS = 4_000
_MAX_INPUT_CHARS = 4_000
_MAX_ARGUMENTS_CHARS = 500
_MAX_RESULT_CHARS = 6_000
_MAX_RESULTS_CHARS = 20_000


def next_messages(
    task: AgentTask, tools: Sequence[ServerTool], made: Sequence[MadeCall]
) -> list[Message]:
    """Messages that request a ``NextCall``.

    Args:
        task: The step.
        tools: Those that the plan allows.
        made: The calls so far.
    """
    sections = [
        *_about(task),
        ("Tools", mark_untrusted(shown_tools(tools))),
        ("Input of the step", _inputs(task)),
        ("Results of earlier steps", _earlier(task)),
        ("Calls so far", mark_untrusted(shown_calls(made)) if made else "none"),
    ]
    return [
        system(_NEXT.fill(untrusted_notice=UNTRUSTED_NOTICE)),
        user(join_sections(sections)),
    ]


def summary_messages(task: AgentTask, made: Sequence[MadeCall]) -> list[Message]:
    """Messages that request the results in words."""
    sections = [*_about(task), ("Calls", mark_untrusted(shown_calls(made)))]
    return [
        system(_SUMMARY.fill(untrusted_notice=UNTRUSTED_NOTICE)),
        user(join_sections(sections)),
    ]


def shown_tools(tools: Sequence[ServerTool]) -> str:
    """Tools with their schemas; of many, the last by their names alone."""
    lines, left = [], _MAX_TOOLS_CHARS
    for tool in tools:
        definition = tool.definition
        effect = "reads" if definition.reads else "changes something, after approval"
        head = f"{definition.name} ({effect})"
        schema = json.dumps(definition.schema, ensure_ascii=False)
        text = f"{head}: {definition.description}\n  arguments: {schema[:_MAX_SCHEMA_CHARS]}"
        line = text if len(text) <= left else head
        left -= len(line)
        lines.append(line)
    return "\n".join(lines)


def shown_calls(made: Sequence[MadeCall]) -> str:
    """Calls with their results, of which the latest have room first."""
    blocks, left = [], _MAX_RESULTS_CHARS
    for call in reversed(made):
        text = call.shown[: min(_MAX_RESULT_CHARS, max(0, left))]
        left -= len(text)
        arguments = json.dumps(call.arguments, ensure_ascii=False)[:_MAX_ARGUMENTS_CHARS]
        blocks.append(f"{call.tool}({arguments})\n{text}")
    return "\n\n".join(reversed(blocks))


def _about(task: AgentTask) -> list[tuple[str, str]]:
    return [
        *task.user_sections,
        ("Question of the user", differing_question(task)),
        (SETTLED, task.settled if task.input.clarifications else ""),
        ("Dates", format_dates(task.input.context.fields, periods=True)),
        ("Entities", format_entities(task.input.entities) if task.input.entities else ""),
        ("Task", task.effective_task),
    ]


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
