"""Prompts of the code agent.

System messages are the files in this folder and constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bos_agentkit import UNTRUSTED_NOTICE, mark_untrusted
from bos_agentkit.programs.prompts import (
    differing_question,
    join_sections,
    program_sections,
    result_json,
)
from bos_llm import Message, assistant, prompt_file, system, user

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos_agentkit import AgentTask
    from bos_agentkit.programs.variables import Variable
    from bos_code.replies import CodeProposal

_MAX_SHOWN_OUTPUT_CHARS = 4_000

_PROPOSAL = prompt_file(__name__, "proposal")
_SUMMARY = prompt_file(__name__, "summary")


def proposal_messages(task: AgentTask, variables: Sequence[Variable]) -> list[Message]:
    """Messages that request a program."""
    return [
        system(_PROPOSAL.fill(untrusted_notice=UNTRUSTED_NOTICE)),
        user(join_sections(program_sections(task, variables))),
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
        *task.user_sections,
        ("Question of the user", differing_question(task)),
        ("Task", task.effective_task),
        ("Program", mark_untrusted(code)),
        ("Files that the program made", mark_untrusted(files) if files else ""),
        ("Output of the program", mark_untrusted(output) if output else ""),
        ("Result of the program", mark_untrusted(result_json(given["result"]))),
    ]
    return [system(_SUMMARY.fill(untrusted_notice=UNTRUSTED_NOTICE)), user(join_sections(sections))]
