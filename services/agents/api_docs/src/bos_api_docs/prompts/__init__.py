"""Prompts of the API agent: functions from data to messages.

The system messages are the files beside this one and never differ. Documentation and responses
stand fenced as data: they are the words of others.
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
from bos_api_docs.calls.results import snippet
from bos_chassis.values import render_value, to_value
from bos_llm import Message, prompt_file, system, user

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_agentkit import AgentTask
    from bos_api_docs.calls.results import CallResult
    from bos_api_docs.catalogue.index import Found
    from bos_api_docs.catalogue.model import Operation, Snippet

_PLAN = prompt_file(__name__, "plan")
_SUMMARY = prompt_file(__name__, "summary")
_MAX_DESCRIPTION_CHARS = 300
_MAX_SNIPPET_CHARS = 800
_MAX_INPUT_CHARS = 4_000
_MAX_CONTEXT_KEYS = 30


def plan_messages(task: AgentTask, found: Found, *, several: bool) -> list[Message]:
    """Messages that request an ``ApiCallPlan``.

    Args:
        task: The step.
        found: Candidates, best first.
        several: Whether there are several APIs, so that each candidate names its own.
    """
    endpoints = "\n".join(
        endpoint(number, each, several) for number, each in enumerate(found.operations, 1)
    )
    documentation = "\n\n".join(map(_documented, found.snippets))
    sections = [
        *task.user_sections,
        ("Endpoints", mark_untrusted(endpoints) if endpoints else "none are documented"),
        ("Documentation", mark_untrusted(documentation) if documentation else ""),
        ("Context", _context(task)),
        ("Dates", format_dates(task.input.context.fields, periods=True)),
        ("Entities", format_entities(task.input.entities) if task.input.entities else ""),
        ("Input of the step", _inputs(task)),
        ("Results of earlier steps", _earlier(task)),
        ("Question of the user", differing_question(task)),
        (SETTLED, task.settled if task.input.clarifications else ""),
        ("Task", task.effective_task),
    ]
    return [
        system(_PLAN.fill(untrusted_notice=UNTRUSTED_NOTICE)),
        user(join_sections(sections)),
    ]


def summary_messages(task: AgentTask, result: CallResult) -> list[Message]:
    """Messages that request the response in words."""
    missing = f"\n({result.more})" if result.more else ""
    rows = "" if result.rows is None else f"\nRows: {len(result.rows)}"
    sections = [
        *task.user_sections,
        ("Question of the user", differing_question(task)),
        (SETTLED, task.settled if task.input.clarifications else ""),
        ("Task", task.effective_task),
        ("Call", f"{result.method} {result.url}\nStatus: {result.status_code}{rows}{missing}"),
        ("Response", mark_untrusted(snippet(result))),
    ]
    return [
        system(_SUMMARY.fill(untrusted_notice=UNTRUSTED_NOTICE)),
        user(join_sections(sections)),
    ]


def endpoint(number: int, operation: Operation, several: bool) -> str:
    """One endpoint as prompts show it: number, method, path, description, parameters, body."""
    about = operation.summary
    if operation.description and operation.description != about:
        about = f"{about}. {operation.description}" if about else operation.description
    api = f" [{operation.api}]" if several else ""
    old = " (deprecated)" if operation.deprecated else ""
    lines = [f"{number}.{api} {operation.method} {operation.path}{old}"]
    if about:
        lines.append(f"   {about[:_MAX_DESCRIPTION_CHARS]}")
    for each in operation.parameters:
        if each.place != "cookie":
            star = "*" if each.required else ""
            about_it = "; ".join(filter(None, (each.form, each.description)))
            lines.append(
                f"   {each.place} {each.name}{star}" + (f": {about_it}" if about_it else "")
            )
    if operation.body:
        lines.append(f"   body: {operation.body}")
    if operation.response:
        lines.append(f"   response: {operation.response[:_MAX_DESCRIPTION_CHARS]}")
    return "\n".join(lines)


def _documented(each: Snippet) -> str:
    return f"{each.reference}\n{each.text[:_MAX_SNIPPET_CHARS]}"


def _context(task: AgentTask) -> str:
    """Keys of the request's context; values of simple ones."""
    fields = task.input.context.fields
    shown = []
    for key in sorted(fields)[:_MAX_CONTEXT_KEYS]:
        kind = fields[key].WhichOneof("kind")
        if key.startswith("current_") or kind in ("struct_value", "list_value", "null_value"):
            continue
        shown.append(f"{key}={str(getattr(fields[key], kind or 'string_value'))[:200]}")
    return mark_untrusted("\n".join(shown)) if shown else ""


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


def shown_snippets(snippets: Sequence[Snippet]) -> list[str]:
    """Names of the documentation that a prompt held, for the trace."""
    return [each.reference for each in snippets]
