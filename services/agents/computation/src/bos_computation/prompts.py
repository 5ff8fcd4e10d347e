"""Prompts of the computation agent (SPEC S-06): functions from data to messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bos_agentkit import SETTLED, UNTRUSTED_NOTICE, format_entities, mark_untrusted
from bos_agentkit.variables import describe
from bos_chassis.values import to_value, value_to_json
from bos_llm import Message, assistant, system, user

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_agentkit import AgentTask
    from bos_agentkit.programs import Run
    from bos_agentkit.variables import Variable
    from bos_computation.replies import ComputationPlan

_MAX_SHOWN_RESULT_CHARS = 8_000
_MAX_SHOWN_OUTPUT_CHARS = 2_000

_PLAN_ROLE = f"""\
You solve a task by writing one small Python program. The program runs in a restricted interpreter.

Rules for the program:
- The given variables exist already under the names listed. Use them; never copy their values into \
the program and never make up data.
- End with the result: assign it to a variable named result, or make it the last expression. The \
result is plain data: numbers, texts, dates, lists, dicts. For a table, a list of dicts.
- Use Decimal for money and for exact shares; numbers in the variables may be Decimal, so do not \
mix them with floats.
- Allowed modules: bisect, collections, copy, csv, dataclasses, datetime, decimal, functools, \
itertools, json, math, random, re, typing. Nothing else can be imported, in particular not \
statistics, numpy or pandas.
- Forbidden: files, network, processes, the operating system, eval, exec, open, input, \
getattr with computed names, names with two leading underscores. A program that tries is refused.
- Not available: yield, class inheritance, del, async, the clock. The current date is the variable \
today.
- Keep it short and finite: at most a few seconds and a few megabytes.

{UNTRUSTED_NOTICE}"""

_SUMMARY_ROLE = f"""\
You state the result of a program in words for the person who asked.

- Answer the task directly, in one to three sentences, in the language of the task.
- Every number comes from the program's result or output, as given or sensibly rounded. Compute \
nothing and make nothing up.
- Give a table only when the result has several rows that a person would want to compare; \
otherwise null.

{UNTRUSTED_NOTICE}"""


def plan_messages(task: AgentTask, variables: Sequence[Variable]) -> list[Message]:
    """Asks for a program (SPEC F-01, F-09)."""
    listed = describe(variables)
    sections = [
        ("Task", task.effective_task),
        ("Entities", format_entities(task.input.entities)),
        ("Variables", mark_untrusted(listed) if task.tainted else listed),
        ("Instructions", "Write the program that solves the task with these variables."),
    ]
    if task.input.question and task.input.question != task.input.task:
        sections.insert(0, ("Question of the user", task.input.question))
    if task.input.clarifications:
        sections.insert(-1, (SETTLED, task.settled))
    return [system(_PLAN_ROLE), user(_sections(sections))]


def correction_messages(
    task: AgentTask, variables: Sequence[Variable], plan: ComputationPlan, error: str
) -> list[Message]:
    """Asks for a corrected program after the one of ``plan`` failed with ``error``."""
    failure = mark_untrusted(error) if task.tainted else error
    return [
        *plan_messages(task, variables),
        assistant(plan.model_dump_json()),
        user(
            f"The program failed:\n{failure}\n"
            "Correct it and reply with the whole program. Keep to the rules."
        ),
    ]


def summary_messages(task: AgentTask, run: Run) -> list[Message]:
    """Asks for the answer in words (SPEC F-06). The result comes last, as JSON."""
    output = run.stdout[:_MAX_SHOWN_OUTPUT_CHARS] or "none"
    result = _shown(run.result)
    sections = [
        ("Task", task.effective_task),
        ("Program", run.code),
        ("Output of the program", mark_untrusted(output) if task.tainted else output),
        ("Result of the program", mark_untrusted(result) if task.tainted else result),
    ]
    return [system(_SUMMARY_ROLE), user(_sections(sections))]


def _sections(sections: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join(f"### {heading}\n{body}" for heading, body in sections)


def _shown(value: Any) -> str:
    text = json.dumps(value_to_json(to_value(value)), ensure_ascii=False)
    if len(text) <= _MAX_SHOWN_RESULT_CHARS:
        return text
    return f"{text[:_MAX_SHOWN_RESULT_CHARS]}… ({len(text)} characters in all)"
