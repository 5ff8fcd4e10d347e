"""Prompts of the mail agent.

System messages are the files in this folder and constant.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bos_agentkit import (
    SETTLED,
    UNTRUSTED_NOTICE,
    format_dates,
    format_entities,
    mark_untrusted,
)
from bos_chassis.values import render_value, to_value
from bos_llm import prompt_file, system, user
from bos_llm.prompts import NOTHING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos_agentkit import AgentTask
    from bos_llm import Message
    from bos_mail.mailbox import Letter

_MAX_UPSTREAM_CHARS = 6_000
_MAX_LETTER_CHARS = 6_000
_MAX_RESULT_CHARS = 8_000
_MAX_FILES = 32

_ACTION = prompt_file(__name__, "action")
_COMPOSE = prompt_file(__name__, "compose")
_SUMMARY = prompt_file(__name__, "summary")


def action_messages(task: AgentTask, allowed: Sequence[str]) -> list[Message]:
    """Messages that request the action."""
    sections = [*_about(task), ("Allowed actions", ", ".join(allowed)), *_work(task)]
    return [system(_ACTION.fill(untrusted_notice=UNTRUSTED_NOTICE)), user(_joined(sections))]


def compose_messages(
    task: AgentTask, *, sender: str, to: Sequence[str], original: Letter | None
) -> list[Message]:
    """Messages that request the words of a mail."""
    sections = [
        *_about(task),
        ("From", sender),
        ("To", ", ".join(to)),
        ("Message that it replies to", _letter(original)),
        ("Files of earlier steps", _files(task)),
        *_work(task),
    ]
    return [system(_COMPOSE.fill(untrusted_notice=UNTRUSTED_NOTICE)), user(_joined(sections))]


def summary_messages(task: AgentTask, action: str, data: Mapping[str, Any]) -> list[Message]:
    """Messages that request the summary; the result comes last, as JSON."""
    result = json.dumps(dict(data), ensure_ascii=False, default=str)[:_MAX_RESULT_CHARS]
    sections = [
        ("Question of the user", task.input.question),
        ("Task", task.effective_task),
        ("Action", action),
        ("Result", mark_untrusted(result)),
    ]
    return [system(_SUMMARY.fill(untrusted_notice=UNTRUSTED_NOTICE)), user(_joined(sections))]


def _about(task: AgentTask) -> list[tuple[str, str]]:
    return [
        *task.user_sections,
        (SETTLED, "" if task.settled == NOTHING else task.settled),
        ("Dates", format_dates(task.input.context.fields)),
    ]


def _work(task: AgentTask) -> list[tuple[str, str]]:
    entities = format_entities(task.input.entities)
    upstream = "\n".join(
        f"- {step}: {render_value(to_value(data))[:_MAX_UPSTREAM_CHARS]}"
        for step, data in task.dependencies.items()
    )[: 2 * _MAX_UPSTREAM_CHARS]
    return [
        ("Details", "" if entities == NOTHING else entities),
        ("Results of earlier steps", mark_untrusted(upstream) if upstream else ""),
        ("Task", task.effective_task),
    ]


def _files(task: AgentTask) -> str:
    """Files that could be attached; names are of steps, which may have read content of others."""
    lines = [
        f"- {file.step_id}/{file.name}: {file.media_type}, {file.size_bytes} bytes"
        for file in task.input_files
    ]
    return mark_untrusted("\n".join(lines[:_MAX_FILES])) if lines else ""


def _letter(original: Letter | None) -> str:
    if original is None:
        return ""
    head = f"From: {original.sender}\nSubject: {original.subject}\nDate: {original.date}"
    return mark_untrusted(f"{head}\n\n{original.body[:_MAX_LETTER_CHARS]}")


def _joined(sections: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join(f"### {heading}\n{text}" for heading, text in sections if text.strip())
