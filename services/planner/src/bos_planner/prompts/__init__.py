"""Prompts of the planner, made from the ``*.md`` files beside this module.

The system message (rules, example, agents in brief) is the same for every question of a deployment,
for the prompt cache of endpoints; rules for reports and for uploaded files follow where a question
may be about them. The user message is ordered from rarely changing parts to the question, which
comes last; missing facts have no section. Details of a card are shown for candidates alone, so that
prompts grow little with every agent that is installed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from textwrap import shorten

from bos.agent.v1 import AgentCard, OutputField, Tool
from bos.common.v1 import ConversationMessage, MessageRole, Value
from bos.planner.v1 import (
    ClassifyInstructionsRequest,
    ContextEntry,
    FailedStep,
    MakePlanRequest,
    RevisionContext,
    Step,
)
from bos_chassis.values import render_value
from bos_llm import Message, system, user
from bos_llm.prompts import (
    NOTHING,
    SETTLED,
    UNTRUSTED_NOTICE,
    format_clarifications,
    format_dates,
    format_user_profile,
    mark_untrusted,
    prompt_file,
)
from bos_planner.reports import asks_for_report
from bos_plans import Selection, missing_context

# Required verbatim.
REFINEMENT = (
    "Use proposed agent list, optionally drop agents that add no value, keep order unless "
    "compelling reason"
)

_SYSTEM = prompt_file(__name__, "system")
_REVISION = prompt_file(__name__, "revision")
_REPORT = prompt_file(__name__, "report")
_UPLOADS = prompt_file(__name__, "uploads")
_INSTRUCTIONS = prompt_file(__name__, "instructions")

_MAX_CONTEXT_KEYS = 50
_MAX_NAME_CHARS = 100
_MAX_MESSAGE_CHARS = 2_000
_MAX_DETAIL_CHARS = 500
_MAX_TOOL_CHARS = 64
_BRIEF_USE_CASES = 2
_CLAUSE_END = re.compile(r"[.:;](?:\s|\Z)")
_ROLES = {
    MessageRole.MESSAGE_ROLE_ASSISTANT: "assistant",
    MessageRole.MESSAGE_ROLE_SUMMARY: "summary",
}
# Shown as a date, not as keys.
_TEMPORAL_KEYS = frozenset(
    (
        "current_datetime_utc",
        "current_date",
        "current_date_start_hour",
        "current_date_end_hour",
    )
)
# What may be about rows of an uploaded file; all other questions need no rules for these.
_ABOUT_UPLOADS = re.compile(
    r"\.(?:csv|tsv|xlsx|parquet)\b|\b(?:upload(?:s|ed)?|spreadsheets?|workbooks?)\b", re.IGNORECASE
)
# Outputs that the rules describe once for all agents.
_COMMON_OUTPUTS = frozenset(("answer", "table", "rows", "columns", "row_count"))


def plan_messages(
    request: MakePlanRequest,
    selection: Selection,
    *,
    cards: Sequence[AgentCard],
    disabled: Sequence[str],
    max_steps: int,
    history_messages: int,
) -> list[Message]:
    """The messages of the one planning call.

    Args:
        request: What to plan for; its revision context makes it a revision.
        selection: Candidates after preferences.
        cards: Agents that the plan may use.
        disabled: Canonical names of agents that the user disabled.
        max_steps: Most steps of a plan.
        history_messages: Most recent messages to show.
    """
    sections = [
        *_circumstances(request, selection, cards, disabled, history_messages),
        *(_revision_sections(request.revision) if request.HasField("revision") else ()),
        ("Question", request.question),
        (SETTLED, _settled(request)),
        ("Instructions", f"Plan at most {max_steps} steps."),
    ]
    shown = "\n\n".join(f"### {heading}\n{body}" for heading, body in sections if body)
    # Optional parts come after the shared beginning, for prompt caching.
    rules = [_SYSTEM.fill(refinement=REFINEMENT, agents="\n".join(map(_card, cards)) or NOTHING)]
    if request.HasField("revision"):
        rules.append(_REVISION.text)
    elif asks_for_report(request.question):
        rules.append(_REPORT.text)
    if _ABOUT_UPLOADS.search(request.question):
        rules.append(_UPLOADS.text)
    if "<untrusted>" in shown:
        rules.append(UNTRUSTED_NOTICE)
    return [system("\n\n".join(rules)), user(shown)]


def instruction_messages(request: ClassifyInstructionsRequest) -> list[Message]:
    """The messages of the call that classifies an approval's instructions."""
    sections = (
        # Both may be made of untrusted content: the task by a reference or a revised plan.
        ("Task", mark_untrusted(request.task)),
        ("What was proposed", mark_untrusted(request.proposal) if request.proposal else NOTHING),
        ("Instructions", request.instructions),
    )
    shown = "\n\n".join(f"### {heading}\n{body}" for heading, body in sections)
    return [system(f"{_INSTRUCTIONS.text}\n\n{UNTRUSTED_NOTICE}"), user(shown)]


def _circumstances(
    request: MakePlanRequest,
    selection: Selection,
    cards: Sequence[AgentCard],
    disabled: Sequence[str],
    history_messages: int,
) -> Iterator[tuple[str, str]]:
    """Context sections of the question, ordered from rarely to often changing."""
    fields = request.context.fields
    keys = sorted(key for key in fields if key not in _TEMPORAL_KEYS)
    profile = format_user_profile(request.long_term_memory)
    recent = request.conversation_history[-history_messages:] if history_messages else ()
    yield "Date", format_dates(fields, periods=False)
    yield "User profile", "" if profile == NOTHING else profile
    yield "Disabled agents", _names(disabled)
    yield "Preferred agents", _names(selection.guardrails.get("preferred_agents", ()))
    yield "Context keys", _names(keys[:_MAX_CONTEXT_KEYS])
    yield "Missing context", "\n".join(_missing(cards, fields))
    # Earlier answers may quote untrusted cells, pages and documents.
    yield "Conversation so far", _untrusted(_said(message) for message in recent)
    candidates = [card for name in selection.agents for card in cards if card.name == name]
    yield "Candidate agents", "\n".join(map(_details, candidates)) or NOTHING


def _settled(request: MakePlanRequest) -> str:
    return format_clarifications(request.clarifications) if request.clarifications else ""


def _revision_sections(revision: RevisionContext) -> Iterator[tuple[str, str]]:
    learnt = revision.working_context
    # Errors and findings may quote untrusted databases, pages and documents, and a plan that was
    # itself a revision may repeat what they say.
    yield "Plan that failed", _untrusted(_step(step) for step in revision.failed_plan.steps)
    yield "Steps that were run", _untrusted(_entry(entry) for entry in revision.execution_context)
    yield "Failed steps", _untrusted(_failure(step) for step in revision.failed_steps)
    yield "Blocked steps", _untrusted(_failure(step) for step in revision.blocked_steps)
    yield "Findings so far", _untrusted(f"- {_cut(text)}" for text in learnt.key_findings)
    yield "Errors so far", _untrusted(f"- {_cut(text)}" for text in learnt.errors_encountered)


def _card(card: AgentCard) -> str:
    """A card in brief: what speaks for the agent, and the names that a plan may use."""
    facts = (
        ("for", "; ".join(card.typical_use_cases[:_BRIEF_USE_CASES])),
        ("tools", ", ".join(map(_tool_name, card.tools)) if _has_choice(card) else ""),
        ("output fields", ", ".join(field.name for field in _own_outputs(card))),
        ("needs context", ", ".join(card.required_context_keys)),
    )
    seconds = card.latency_budget.ToMilliseconds() / 1000
    # An undeclared budget of 0 would read as an agent that takes no time.
    title = f"{card.name} ({seconds:g} s)" if seconds else card.name
    return _facts(f"{title}: {_cut(card.description)}", facts)


def _details(card: AgentCard) -> str:
    """What the brief card leaves out."""
    facts = (
        ("can", "; ".join(card.capabilities)),
        ("for", "; ".join(card.typical_use_cases[_BRIEF_USE_CASES:])),
        ("tools", "; ".join(map(_tool, card.tools))),
        ("output fields", "; ".join(map(_output, _own_outputs(card)))),
    )
    return _facts(card.name[:_MAX_NAME_CHARS], facts)


def _facts(title: str, facts: Iterable[tuple[str, str]]) -> str:
    return "\n".join([title, *(f"  {name}: {fact}" for name, fact in facts if fact)])


def _own_outputs(card: AgentCard) -> list[OutputField]:
    return [field for field in card.output_fields if field.name not in _COMMON_OUTPUTS]


def _has_choice(card: AgentCard) -> bool:
    """Whether a plan may have to name a tool: of several, or one that needs approval."""
    return len(card.tools) > 1 or any(tool.requires_approval for tool in card.tools)


def _tool_name(tool: Tool) -> str:
    return f"{tool.name} (needs approval)" if tool.requires_approval else tool.name


def _output(field: OutputField) -> str:
    return f"{field.name} ({_cut(field.description)})" if field.description else field.name


def _tool(tool: Tool) -> str:
    """Name and first clause of a tool, enough to choose it; only its agent needs its arguments."""
    clause = _CLAUSE_END.split(tool.description.strip(), maxsplit=1)[0]
    description = shorten(clause, _MAX_TOOL_CHARS, placeholder="…")
    approval = "needs approval" if tool.requires_approval else ""
    return f"{tool.name} ({'; '.join(filter(None, (description, approval)))})"


def _missing(cards: Iterable[AgentCard], context_keys: Collection[str]) -> Iterator[str]:
    for card in cards:
        missing = missing_context(card, context_keys)
        if missing:
            yield f"{card.name}: {_names(missing)}"


def _said(message: ConversationMessage) -> str:
    return f"{_ROLES.get(message.role, 'user')}: {_cut(message.content, _MAX_MESSAGE_CHARS)}"


def _step(step: Step) -> str:
    after = f" after {', '.join(step.depends_on)}" if step.depends_on else ""
    tool = f" with {step.tool_name}" if step.tool_name else ""
    return (
        f"- {step.step_id} ({step.agent}{tool}{after}): {_cut(step.task)} "
        f"[{_inputs(step.sub_task_input)}]"
    )


def _entry(entry: ContextEntry) -> str:
    outcome = "succeeded" if entry.succeeded else "failed"
    return (
        f"- {entry.step_id} {outcome}; input: {_inputs(entry.sub_task_input)}; "
        f"output fields: {_names(entry.output_fields) or NOTHING}"
    )


def _failure(failed: FailedStep) -> str:
    line = f"- {failed.step_id} ({failed.agent}): {failed.error.type}: {_cut(failed.error.message)}"
    if failed.partial_data.fields:
        line += f"; partial data: {_cut(render_value(Value(map_value=failed.partial_data)))}"
    return line


def _inputs(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={_cut(render_value(values[name]))}" for name in sorted(values))


def _untrusted(lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    return mark_untrusted(text) if text else ""


def _names(names: Iterable[str]) -> str:
    return ", ".join(name[:_MAX_NAME_CHARS] for name in names)


def _cut(text: str, limit: int = _MAX_DETAIL_CHARS) -> str:
    """``text`` on one line, truncated to the limit."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
