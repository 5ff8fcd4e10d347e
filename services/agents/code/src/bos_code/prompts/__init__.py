"""Prompts of the code agent.

System messages are the files in this folder and constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bos.common.v1 import MessageRole
from bos_agentkit import UNTRUSTED_NOTICE, mark_untrusted
from bos_agentkit.programs.prompts import (
    differing_question,
    join_sections,
    program_sections,
    result_json,
)
from bos_llm import Message, assistant, prompt_file, system, user
from bos_llm.prompts import NOTHING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos_agentkit import AgentTask
    from bos_agentkit.programs.variables import Variable
    from bos_code.replies import CodeProposal

_MAX_SHOWN_OUTPUT_CHARS = 4_000
_MAX_MESSAGES = 6
_MAX_MESSAGE_CHARS = 500

_PROPOSAL = prompt_file(__name__, "proposal")
_SUMMARY = prompt_file(__name__, "summary")


def proposal_messages(task: AgentTask, variables: Sequence[Variable]) -> list[Message]:
    """Messages that request a program."""
    conversation = _conversation(task)
    sections = [
        ("About the user", "" if task.profile == NOTHING else task.profile),
        ("Conversation so far", mark_untrusted(conversation) if conversation else ""),
        *program_sections(task, variables),
    ]
    return [
        system(_PROPOSAL.fill(untrusted_notice=UNTRUSTED_NOTICE)),
        user(join_sections(sections)),
    ]


def correction_messages(
    task: AgentTask, variables: Sequence[Variable], proposal: CodeProposal, problem: str
) -> list[Message]:
    """Messages that request another program in place of one that cannot be proposed."""
    return [
        *proposal_messages(task, variables),
        assistant(proposal.model_dump_json()),
        user(f"{problem}\nCorrect it and reply with the whole program. Keep to the rules."),
    ]


def summary_messages(task: AgentTask, code: str, given: Mapping[str, Any]) -> list[Message]:
    """Messages that request the answer from the tool's result, which comes last, as JSON."""
    output = given["stdout"][:_MAX_SHOWN_OUTPUT_CHARS]
    files = ", ".join(given["files"])
    sections = [
        ("Question of the user", differing_question(task)),
        ("Task", task.effective_task),
        ("Program", mark_untrusted(code)),
        ("Files that the program made", mark_untrusted(files) if files else ""),
        ("Output of the program", mark_untrusted(output) if output else ""),
        ("Result of the program", mark_untrusted(result_json(given["result"]))),
    ]
    return [system(_SUMMARY.fill(untrusted_notice=UNTRUSTED_NOTICE)), user(join_sections(sections))]


def _conversation(task: AgentTask) -> str:
    lines = []
    for message in list(task.input.conversation_history)[-_MAX_MESSAGES:]:
        role = MessageRole.Name(message.role).removeprefix("MESSAGE_ROLE_").lower()
        lines.append(f"{role}: {' '.join(message.content.split())[:_MAX_MESSAGE_CHARS]}")
    return "\n".join(lines)
