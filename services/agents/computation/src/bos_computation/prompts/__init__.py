"""Prompts of the computation agent: functions from data to messages.

The system messages are the files beside this one and never differ.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bos_agentkit import SETTLED, UNTRUSTED_NOTICE, format_entities, mark_untrusted
from bos_agentkit.prompts import NOTHING
from bos_agentkit.variables import describe, not_repeated
from bos_chassis.values import to_value, value_to_json
from bos_llm import Message, assistant, prompt_file, system, user

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_agentkit import AgentTask
    from bos_agentkit.programs import Run
    from bos_agentkit.variables import Variable
    from bos_computation.replies import ComputationPlan

_MAX_SHOWN_RESULT_CHARS = 8_000
_MAX_SHOWN_OUTPUT_CHARS = 2_000

_PLAN = prompt_file(__name__, "plan")
_SUMMARY = prompt_file(__name__, "summary")


def plan_messages(task: AgentTask, variables: Sequence[Variable]) -> list[Message]:
    """Asks for a program."""
    entities = format_entities(task.input.entities)
    sections = [
        ("Question of the user", _question(task)),
        (SETTLED, task.settled if task.input.clarifications else ""),
        ("Entities", "" if entities == NOTHING else entities),
        ("Variables", mark_untrusted(describe(not_repeated(variables)))),
        ("Task", task.effective_task),
        ("Instructions", "Write the program that solves the task with these variables."),
    ]
    return [system(_PLAN.fill(untrusted_notice=UNTRUSTED_NOTICE)), user(_sections(sections))]


def correction_messages(
    task: AgentTask, variables: Sequence[Variable], plan: ComputationPlan, error: str
) -> list[Message]:
    """Asks for a corrected program after the one of ``plan`` failed with ``error``."""
    return [
        *plan_messages(task, variables),
        assistant(plan.model_dump_json()),
        user(
            f"The program failed:\n{mark_untrusted(error)}\n"
            "Correct it and reply with the whole program. Keep to the rules."
        ),
    ]


def summary_messages(task: AgentTask, run: Run) -> list[Message]:
    """Asks for the answer in words. The result comes last, as JSON."""
    output = run.stdout[:_MAX_SHOWN_OUTPUT_CHARS]
    sections = [
        ("Question of the user", _question(task)),
        ("Task", task.effective_task),
        ("Program", mark_untrusted(run.code)),
        ("Output of the program", mark_untrusted(output) if output else ""),
        ("Result of the program", mark_untrusted(_shown(run.result))),
    ]
    return [system(_SUMMARY.fill(untrusted_notice=UNTRUSTED_NOTICE)), user(_sections(sections))]


def _question(task: AgentTask) -> str:
    """The user's question, if the task is not the same."""
    return task.input.question if task.input.question != task.effective_task else ""


def _sections(sections: Sequence[tuple[str, str]]) -> str:
    """Those with content, each under its heading."""
    return "\n\n".join(f"### {heading}\n{body}" for heading, body in sections if body)


def _shown(value: Any) -> str:
    text = json.dumps(value_to_json(to_value(value)), ensure_ascii=False)
    if len(text) <= _MAX_SHOWN_RESULT_CHARS:
        return text
    return f"{text[:_MAX_SHOWN_RESULT_CHARS]}… ({len(text)} characters in all)"
