"""Prompts of the files agent. The system message is a file in this folder and constant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import UNTRUSTED_NOTICE, mark_untrusted
from bos_agentkit.programs.prompts import differing_question, join_sections
from bos_agentkit.programs.variables import describe, without_repeated
from bos_chassis.values import render_value, to_value
from bos_llm import Message, assistant, prompt_file, system, user
from bos_llm.prompts import SETTLED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_agentkit import AgentTask
    from bos_agentkit.programs.variables import Variable
    from bos_files.replies import FileOperation

_OPERATION = prompt_file(__name__, "operation")
_MAX_CONTENT_CHARS = 6_000
_MAX_NAMES = 100


def operation_messages(
    task: AgentTask, variables: Sequence[Variable], names: Sequence[str]
) -> list[Message]:
    """Messages that request one operation."""
    listed = without_repeated(variables)
    shown = names[:_MAX_NAMES]
    sections = [
        *task.user_sections,
        (SETTLED, task.settled if task.input.clarifications else ""),
        ("Question of the user", differing_question(task)),
        ("Files in the workspace", mark_untrusted("\n".join(shown)) if shown else ""),
        ("Variables", mark_untrusted(describe(listed))),
        ("Content of the variables", mark_untrusted(_content(listed))),
        ("Task", task.effective_task),
        ("Instructions", "Reply with the operation that does this task."),
    ]
    return [
        system(_OPERATION.fill(untrusted_notice=UNTRUSTED_NOTICE)),
        user(join_sections(sections)),
    ]


def correction_messages(
    messages: Sequence[Message], operation: FileOperation, problem: str
) -> list[Message]:
    """Messages that request another operation in place of one that cannot be done."""
    return [
        *messages,
        assistant(operation.model_dump_json()),
        user(f"{problem}\nCorrect it and reply with the whole operation."),
    ]


def _content(variables: Sequence[Variable]) -> str:
    lines = [f"{each.name} = {render_value(to_value(each.value))}" for each in variables]
    return "\n".join(line[:_MAX_CONTENT_CHARS] for line in lines)[:_MAX_CONTENT_CHARS]
