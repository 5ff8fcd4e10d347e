"""Prompts of the code agent (SPEC S-06): functions from data to messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bos.common.v1 import MessageRole
from bos_agentkit import SETTLED, UNTRUSTED_NOTICE, format_entities, mark_untrusted
from bos_agentkit.variables import describe
from bos_chassis.values import to_value, value_to_json
from bos_llm import Message, assistant, system, user

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos_agentkit import AgentTask
    from bos_agentkit.variables import Variable
    from bos_code.replies import CodeProposal

_MAX_SHOWN_RESULT_CHARS = 8_000
_MAX_SHOWN_OUTPUT_CHARS = 4_000
_MAX_MESSAGES = 6
_MAX_MESSAGE_CHARS = 500
_NOTHING = "none"

_PROPOSE_ROLE = f"""\
You solve a task by writing one Python program. A person reads it and approves it before it runs, \
so write it clearly and do nothing that the task does not ask for.

Rules for the program:
- It runs as full CPython with the standard library, numpy, pandas and matplotlib, without \
network, other processes, user input or a clock; the current date is the variable today.
- The given variables exist already under the names listed. Use them; never copy their values \
into the program and never make up data.
- frame(rows) makes a pandas DataFrame of a list of dicts and is there when you call it. Numbers \
in the variables may be Decimal; frame turns them into floats.
- End with the result: assign it to a variable named result. The result is plain data: numbers, \
texts, dates, lists, dicts, or a DataFrame. For a table, a DataFrame or a list of dicts.
- Draw with matplotlib.pyplot; label axes and give a title. Save figures and other files by a \
plain name in the current folder; figures that stay open are saved by themselves. Never show().
- At most 16 files, 4 MB each; a few seconds and 100 megabytes.
- Do not catch errors that the task does not speak of: a program that fails must say so.

{UNTRUSTED_NOTICE}"""

_SUMMARY_ROLE = f"""\
You state the result of a program in words for the person who asked.

- Answer the task directly, in one to three sentences, in the language of the task.
- Every number comes from the program's result or output, as given or sensibly rounded. Compute \
nothing and make nothing up.
- Mention the files that the program made, if any, by their names.

{UNTRUSTED_NOTICE}"""


def proposal_messages(task: AgentTask, variables: Sequence[Variable]) -> list[Message]:
    """Asks for a program (SPEC F-07, F-09)."""
    listed = describe(variables)
    optional = [
        ("Question of the user", _question(task)),
        ("About the user", task.profile),
        ("Conversation so far", _conversation(task)),
        (SETTLED, task.settled),
    ]
    sections = [(heading, body) for heading, body in optional if body not in ("", _NOTHING)]
    sections += [
        ("Task", task.effective_task),
        ("Entities", format_entities(task.input.entities)),
        ("Variables", mark_untrusted(listed) if task.tainted else listed),
        ("Instructions", "Write the program that solves the task with these variables."),
    ]
    return [system(_PROPOSE_ROLE), user(_sections(sections))]


def correction_messages(
    task: AgentTask, variables: Sequence[Variable], proposal: CodeProposal, problem: str
) -> list[Message]:
    """Asks for another program in the place of one that nobody should be asked about."""
    return [
        *proposal_messages(task, variables),
        assistant(proposal.model_dump_json()),
        user(f"{problem}\nCorrect it and reply with the whole program. Keep to the rules."),
    ]


def summary_messages(task: AgentTask, code: str, given: Mapping[str, Any]) -> list[Message]:
    """Asks for the answer in words, from what the tool gave. The result comes last, as JSON."""
    output = given["stdout"][:_MAX_SHOWN_OUTPUT_CHARS] or _NOTHING
    result = _shown(given["result"])
    files = ", ".join(given["files"]) or _NOTHING
    fence = mark_untrusted if task.tainted else str
    sections = [
        ("Task", task.effective_task),
        ("Program", code),
        ("Files that the program made", fence(files)),
        ("Output of the program", fence(output)),
        ("Result of the program", fence(result)),
    ]
    return [system(_SUMMARY_ROLE), user(_sections(sections))]


def _question(task: AgentTask) -> str:
    return task.input.question if task.input.question != task.input.task else ""


def _conversation(task: AgentTask) -> str:
    lines = []
    for message in list(task.input.conversation_history)[-_MAX_MESSAGES:]:
        role = MessageRole.Name(message.role).removeprefix("MESSAGE_ROLE_").lower()
        lines.append(f"{role}: {' '.join(message.content.split())[:_MAX_MESSAGE_CHARS]}")
    return "\n".join(lines)


def _sections(sections: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join(f"### {heading}\n{body}" for heading, body in sections)


def _shown(value: Any) -> str:
    text = json.dumps(value_to_json(to_value(value)), ensure_ascii=False)
    if len(text) <= _MAX_SHOWN_RESULT_CHARS:
        return text
    return f"{text[:_MAX_SHOWN_RESULT_CHARS]}… ({len(text)} characters in all)"
