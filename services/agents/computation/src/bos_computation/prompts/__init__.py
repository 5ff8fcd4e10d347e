"""Prompts of the computation agent.

System messages are the files in this folder and constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import UNTRUSTED_NOTICE, mark_untrusted
from bos_agentkit.programs.prompts import (
    differing_question,
    join_sections,
    program_sections,
    result_json,
)
from bos_llm import Message, assistant, prompt_file, system, user

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_agentkit import AgentTask
    from bos_agentkit.programs.sandbox import Run
    from bos_agentkit.programs.variables import Variable
    from bos_computation.replies import ComputationPlan

_MAX_SHOWN_OUTPUT_CHARS = 2_000

_PLAN = prompt_file(__name__, "plan")
_SUMMARY = prompt_file(__name__, "summary")


def plan_messages(task: AgentTask, variables: Sequence[Variable]) -> list[Message]:
    """Messages that request a program."""
    sections = program_sections(task, variables)
    return [
        system(_PLAN.fill(untrusted_notice=UNTRUSTED_NOTICE)),
        user(join_sections(sections)),
    ]


def correction_messages(
    task: AgentTask, variables: Sequence[Variable], plan: ComputationPlan, error: str
) -> list[Message]:
    """Messages that request a corrected program after that of ``plan`` failed with ``error``."""
    return [
        *plan_messages(task, variables),
        assistant(plan.model_dump_json()),
        user(
            f"The program failed:\n{mark_untrusted(error)}\n"
            "Correct it and reply with the whole program. Keep to the rules."
        ),
    ]


def summary_messages(task: AgentTask, run: Run) -> list[Message]:
    """Messages that request the answer; the result comes last, as JSON."""
    output = run.stdout[:_MAX_SHOWN_OUTPUT_CHARS]
    sections = [
        *task.user_sections,
        ("Question of the user", differing_question(task)),
        ("Task", task.effective_task),
        ("Program", mark_untrusted(run.code)),
        ("Output of the program", mark_untrusted(output) if output else ""),
        ("Result of the program", mark_untrusted(result_json(run.result))),
    ]
    return [system(_SUMMARY.fill(untrusted_notice=UNTRUSTED_NOTICE)), user(join_sections(sections))]
