"""What the planner tells its model and shows it.

The system message holds ``### Choosing agents``, ``### Intent`` and ``### Steps`` (and
``### Revision``); the user message the sections named in :func:`_sections`, in that order, each
always present so that a missing fact reads ``none``, but for what the user has settled, which is
there only in a run that goes on after clarifying questions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.common.v1 import MessageRole, Value
from bos_agentkit.prompts import (
    NOTHING,
    SETTLED,
    UNTRUSTED_NOTICE,
    format_clarifications,
    format_user_profile,
    mark_untrusted,
)
from bos_chassis.values import render_value
from bos_llm import Message, system, user
from bos_planner.heuristic import Selection, missing_context

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bos.agent.v1 import AgentCard
    from bos.common.v1 import ConversationMessage
    from bos.planner.v1 import ContextEntry, FailedStep, MakePlanRequest, RevisionContext, Step

# SPEC B-07, word for word.
REFINEMENT = (
    "Use proposed agent list, optionally drop agents that add no value, keep order unless "
    "compelling reason"
)

_ROLE = """\
You are the planner of Bos, which answers questions through specialist agents. You decide what a
question asks for, which agents take part, and which steps they take. You do not answer it."""

_AGENTS = """\
### Choosing agents
{refinement}
Use only agents listed under "Agents", by exactly these names, and never a disabled one. Weigh the
question's words, the user's preferences, what each agent can do and what the context offers. The
user's preferences may override the order; otherwise agents that others depend on come first, then
those whose required context is there, then the quicker ones."""

_INTENT = """\
### Intent
DATA_QA: needs data and an answer.
ANALYTICS_REPORT: needs data, charts and an answer.
GENERAL_QA: answered without querying data; plan no step of a database agent, and no step at all if
no agent is needed.
OUT_OF_SCOPE: nothing that Bos or its agents are for; plan no steps.
When in doubt between DATA_QA and another intent, choose DATA_QA."""

# SPEC B-18. The tools of C-19 reach the model like any other: in the list of agents.
_STEPS = """\
### Steps
Plan at most {max_steps} steps.
Give every step a unique step_id.
A task tells its agent everything it needs to know, in plain language; an agent sees neither the
other steps nor this conversation unless you say so.
A question may follow up the conversation so far, such as "and the quarter before?": plan for what
it means there, and write that out in the tasks.
What the question leaves open about data, such as a measure, a group or a period, is not yours to
guess: leave it open in the task, and the agent that knows the data asks the user. What stands under
"Settled with the user" is settled: the question is meant so, and the tasks say so.
Refer to earlier outputs only as @{{outputs.SOURCE_STEP_ID.FIELD_NAME}} inside sub_task_input.
FIELD_NAME is one of the source agent's output fields, or one that every agent offers: answer
(text), table (list of rows), rows (the same), columns (their names), row_count. A value that is one
reference alone keeps its type; inside a longer text it is written out. Never copy or guess data
that an earlier step produces.
A step with a reference fails if the step it refers to fails; name a step in depends_on if you want
to run after it and can do without its output. Steps that do not need each other run side by side.
Set isFinalAnswer (is_final_answer) on a step only if its answer is the final answer as it stands;
leave it false on all steps if answers must be combined.
Name a tool in tool_name if one of the agent's tools fits exactly, orchestrator tools such as
FileSystemTool and FileDownloaderTool included where they are listed; otherwise leave it null."""

_REVISION = """\
### Revision
An earlier plan failed. Make a new plan that avoids what went wrong: another way, another agent, a
narrower task. Steps that succeeded stay done: do not repeat them and do not reuse their ids, but
refer to their outputs. Blocked steps were not allowed by a person or a rule, or have acted already:
do not plan their work again in any form, and do not reuse their ids. If no step failed, the plan
was uncertain and its results are thin: add what is missing. If nothing else can be tried, return no
steps."""

_MAX_CONTEXT_KEYS = 50
_MAX_NAME_CHARS = 100
_MAX_MESSAGE_CHARS = 2_000
_MAX_DETAIL_CHARS = 500
_ROLES = {
    MessageRole.MESSAGE_ROLE_ASSISTANT: "assistant",
    MessageRole.MESSAGE_ROLE_SYSTEM: "system",
}
_TEMPORAL_KEYS = (
    "current_datetime_utc",
    "current_date",
    "current_date_start_hour",
    "current_date_end_hour",
)


def plan_messages(
    request: MakePlanRequest,
    selection: Selection,
    *,
    cards: Sequence[AgentCard],
    disabled: Sequence[str],
    max_steps: int,
    history_messages: int,
) -> list[Message]:
    """The messages of the one planning call (SPEC B-07, B-14, B-15, B-18, B-20).

    Args:
        request: What to plan for; its revision context makes it a revision.
        selection: Candidates after preferences.
        cards: Agents that may be used.
        disabled: Canonical names of those that may not.
        max_steps: Most steps of a plan.
        history_messages: Most recent messages to show.
    """
    revising = request.HasField("revision")
    rules = [
        _ROLE,
        _AGENTS.format(refinement=REFINEMENT),
        _INTENT,
        _STEPS.format(max_steps=max_steps),
    ]
    if revising:
        rules.append(_REVISION)
    rules.append(UNTRUSTED_NOTICE)
    sections = [*_sections(request, selection, cards, disabled, history_messages)]
    if revising:
        sections += _revision_sections(request.revision)
    shown = "\n\n".join(f"### {heading}\n{body or NOTHING}" for heading, body in sections)
    return [system("\n\n".join(rules)), user(shown)]


def _sections(
    request: MakePlanRequest,
    selection: Selection,
    cards: Sequence[AgentCard],
    disabled: Sequence[str],
    history_messages: int,
) -> Iterator[tuple[str, str]]:
    keys = sorted(request.context.fields)
    recent = request.conversation_history[-history_messages:] if history_messages else ()
    yield "Question", request.question
    if request.clarifications:
        yield SETTLED, format_clarifications(request.clarifications)
    yield "Context keys", _names(keys[:_MAX_CONTEXT_KEYS])
    yield "Date and time", _date_and_time(request)
    yield "Preferred agents", _names(selection.guardrails.get("preferred_agents", ()))
    yield "Candidate agents", _names(selection.agents)
    yield "Disabled agents", _names(disabled)
    yield "Agents", "\n".join(_card(card, keys) for card in cards)
    yield "User profile", format_user_profile(request.long_term_memory)
    yield "Conversation so far", "\n".join(_said(message) for message in recent)


def _revision_sections(revision: RevisionContext) -> Iterator[tuple[str, str]]:
    learnt = revision.working_context
    yield "Plan that failed", "\n".join(_step(step) for step in revision.failed_plan.steps)
    yield "Steps that were run", "\n".join(_entry(entry) for entry in revision.execution_context)
    # Errors and findings repeat what databases, pages and documents said.
    yield "Failed steps", _untrusted(_failure(step) for step in revision.failed_steps)
    yield "Blocked steps", _untrusted(_failure(step) for step in revision.blocked_steps)
    yield "Findings so far", _untrusted(f"- {_cut(text)}" for text in learnt.key_findings)
    yield "Errors so far", _untrusted(f"- {_cut(text)}" for text in learnt.errors_encountered)


def _date_and_time(request: MakePlanRequest) -> str:
    fields = request.context.fields
    return "\n".join(
        f"{key}={_cut(fields[key].string_value)}"
        for key in _TEMPORAL_KEYS
        if key in fields and fields[key].string_value
    )


def _card(card: AgentCard, context_keys: Sequence[str]) -> str:
    lines = [f"{card.name}: {_cut(card.description)}"]
    facts = (
        ("capabilities", ", ".join(card.capabilities)),
        ("typical use cases", "; ".join(card.typical_use_cases)),
        ("tools", "; ".join(f"{tool.name} ({_cut(tool.description)})" for tool in card.tools)),
        ("output fields", "; ".join(f"{f.name} ({f.description})" for f in card.output_fields)),
        ("needs context", ", ".join(card.required_context_keys)),
        ("missing context", ", ".join(missing_context(card, context_keys))),
        ("usual seconds", f"{card.latency_budget.ToMilliseconds() / 1000:g}"),
    )
    # A budget that nobody declared would read as an agent that takes no time.
    lines += [f"  {name}: {fact}" for name, fact in facts if fact not in ("", "0")]
    return "\n".join(lines)


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
    """``text`` on one line and within bounds."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
