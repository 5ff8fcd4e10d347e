"""What the composer tells its model and shows it.

The system message holds the role, ``### Rules`` and, where there are any, ``### User preferences``
and ``### Instructions for this request``; the user message the sections named in :func:`_sections`,
in that order. Sections without content are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.common.v1 import MessageRole, SourceType
from bos.planner.v1 import Intent
from bos_agentkit.prompts import (
    NOTHING,
    SETTLED,
    UNTRUSTED_NOTICE,
    format_clarifications,
    format_user_profile,
    mark_untrusted,
)
from bos_composer.numbers import plain
from bos_composer.outcomes import error_text, reason, status_word, succeeded, was_overridden
from bos_composer.tables import is_number, markdown, values
from bos_llm import Message, system, user

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bos.agent.v1 import AgentResult
    from bos.common.v1 import ConversationMessage, Source, UserPreferences
    from bos.composer.v1 import ComposeRequest
    from bos.planner.v1 import WorkingContext
    from bos_composer.citations import Citations
    from bos_composer.numbers import NumberFormat

# SPEC K-04 and K-10; the rules on failures come from X-17 and K-12.
_RULES = """\
You are a Senior Business Intelligence Agent. You write the final answer to the user's question from
the results of specialist agents.

### Rules
- Give concise, direct answers (no explanations).
- Omit metrics that are 0 or unavailable.
- Prefer structured metrics over narrative.
- Professional tone, no emojis/hashtags.
- If no data: state "no data was returned".
- {money_rule}
- Use only what the results say. Never invent numbers, names or sources.
- Cite statements that come from documents or the web as [1], [2], by the numbers under "Sources".
  Cite nothing else.
- If a step failed, was skipped or was blocked, say so and why, in words for people, and answer from
  what succeeded."""

# SPEC K-11, word for word.
OVERRIDE_NOTICE = (
    "The user changed the task during approval. Present the data the agent actually returned, even "
    "if it differs from the Original User Query."
)
_OVERRIDE_RULE = "Do not claim that the information was not found."

_INTENTS = {
    Intent.INTENT_GENERAL_QA: "The question needs no data: answer it from general knowledge, "
    "and say what you do not know.",
    Intent.INTENT_OUT_OF_SCOPE: "The question is out of scope: decline politely, and say that "
    "questions about the connected data and services are welcome.",
}
_SOURCE_KINDS = {
    SourceType.SOURCE_TYPE_DOCUMENT: "document",
    SourceType.SOURCE_TYPE_WEB: "web",
    SourceType.SOURCE_TYPE_DATABASE: "database",
    SourceType.SOURCE_TYPE_API: "API",
    SourceType.SOURCE_TYPE_MAIL: "mail",
}
_MAX_ANSWER_CHARS = 4_000
_MAX_TEXT_CHARS = 500
_MAX_SECTION_CHARS = 100_000
_ROLES = {
    MessageRole.MESSAGE_ROLE_ASSISTANT: "assistant",
    MessageRole.MESSAGE_ROLE_SYSTEM: "system",
}
_TEMPORAL_KEYS = ("current_datetime_utc", "current_date")


def compose_messages(
    request: ComposeRequest,
    citations: Citations,
    numbers: NumberFormat,
    *,
    history_messages: int,
    preview_rows: int,
) -> list[Message]:
    """The messages of the one composing call (SPEC K-06, K-07).

    Args:
        request: The question and everything the answer may rest on.
        citations: Sources and answers of its results.
        numbers: How numbers are written.
        history_messages: Most recent messages to show.
        preview_rows: Rows of each table to show.
    """
    rules = [_RULES.format(money_rule=numbers.money_rule), UNTRUSTED_NOTICE]
    preferences = _preferences(request.long_term_memory.preferences)
    if preferences:
        rules.append(f"### User preferences\n{preferences}")
    if request.system_prompt.strip():
        rules.append(f"### Instructions for this request\n{request.system_prompt.strip()}")
    sections = _sections(request, citations, numbers, history_messages, preview_rows)
    shown = "\n\n".join(f"### {heading}\n{body}" for heading, body in sections if body)
    return [system("\n\n".join(rules)), user(shown)]


def agent_summary(result: AgentResult, answer: str) -> str:
    """One result on one line, in the words of SPEC K-02."""
    return (
        f"Agent: {result.agent_name} | status: {status_word(result)}. "
        f"Answer: {_cut(answer, _MAX_ANSWER_CHARS) or NOTHING} "
        f"Error: {error_text(result) or result.error.type or NOTHING}"
    )


def _sections(
    request: ComposeRequest,
    citations: Citations,
    numbers: NumberFormat,
    history_messages: int,
    preview_rows: int,
) -> Iterator[tuple[str, str]]:
    recent = request.conversation_history[-history_messages:] if history_messages else ()
    summaries = [*map(agent_summary, request.results, citations.answers)]
    data = [text for result in request.results for text in _data(result, numbers, preview_rows)]
    yield "Question", request.question
    if request.clarifications:
        yield SETTLED, format_clarifications(request.clarifications)
    yield "Planner rationale", _cut(request.decision.rationale) or NOTHING
    yield "Agent results", _untrusted(summaries) or "No agent was run."
    yield "Data", _untrusted(data)
    yield "Files", _untrusted([f"- {_cut(name)}" for name in _files(request.results)])
    yield "Sources", _untrusted([_source(n, s) for n, s in enumerate(citations.sources, start=1)])
    yield "What did not succeed", _untrusted([f"- {text}" for text in _reasons(request.results)])
    yield "Assumptions", _untrusted([f"- {_cut(text)}" for text in _assumptions(request.results)])
    yield "Earlier attempts", _untrusted([*_earlier(request.working_context)])
    yield "Notices", "\n".join(_notices(request))
    yield "Date and time", _date_and_time(request)
    yield "User profile", _profile(request)
    yield "Conversation so far", "\n".join(_said(message) for message in recent)


def _notices(request: ComposeRequest) -> Iterator[str]:
    """What the answer must heed or mention (SPEC K-11, K-12, C-24)."""
    intent = _INTENTS.get(request.intent.intent)
    if intent is not None and not request.results:
        yield f"- {intent}"
    if any(was_overridden(result) for result in request.results):
        yield f"- {OVERRIDE_NOTICE} {_OVERRIDE_RULE}"
    if any(_reasons(request.results)):
        yield '- State everything under "What did not succeed" in the answer.'
    if any(_assumptions(request.results)):
        yield '- State everything under "Assumptions" in the answer: nobody was asked about it.'
    if any(_files(request.results)):
        yield '- Name everything under "Files" in the answer: the user finds it beside the answer.'
    if request.results and not any(succeeded(result) for result in request.results):
        yield "- Nothing succeeded. Explain what was tried and why it failed; do not guess."
    yield from (f"- Mention in the answer: {_cut(remark)}" for remark in request.remarks)


def _assumptions(results: Iterable[AgentResult]) -> Iterator[str]:
    return (text for result in results for text in result.assumptions)


def _files(results: Iterable[AgentResult]) -> Iterator[str]:
    return (file.name for result in results for file in result.files)


def _reasons(results: Iterable[AgentResult]) -> Iterator[str]:
    return filter(None, map(reason, results))


def _earlier(learnt: WorkingContext) -> Iterator[str]:
    yield from (f"- found: {_cut(text)}" for text in learnt.key_findings)
    yield from (f"- failed: {_cut(text)}" for text in learnt.errors_encountered)


def _data(result: AgentResult, numbers: NumberFormat, preview_rows: int) -> Iterator[str]:
    if not succeeded(result):
        return
    name = f"{result.agent_name} ({result.agent_id})" if result.agent_id else result.agent_name
    if result.HasField("table"):
        yield f"Table of {name}, {result.table.row_count} rows:"
        yield markdown(result.table, numbers, max_rows=preview_rows)
    found = values(result)
    if found:
        yield f"Values of {name}:"
    for field, value in found:
        exact = _cut(plain(value))
        written = numbers.cell(field, value) if is_number(value) else exact
        yield f"{field}={exact}" + (f" ({written})" if written != exact else "")


def _source(number: int, source: Source) -> str:
    place = [
        source.uri,
        f"page {source.page}" if source.page else "",
        f"section {_cut(source.section)}" if source.section else "",
    ]
    known = ", ".join(part for part in place if part)
    kind = _SOURCE_KINDS.get(source.type, "source")
    line = f"[{number}] {kind}: {_cut(source.title)}" + (f" ({known})" if known else "")
    return f"{line}: {_cut(source.excerpt)}" if source.excerpt else line


def _preferences(preferences: UserPreferences) -> str:
    """What overrides the default brevity (SPEC K-13, X-17)."""
    wishes = (
        ("Tone", preferences.tone),
        ("Level of detail", preferences.detail_level),
        ("Language of the answer", preferences.language),
    )
    lines = [f"- {name}: {_cut(wish)}" for name, wish in wishes if wish.strip()]
    return "\n".join(["These come before the rules on brevity and tone.", *lines]) if lines else ""


def _profile(request: ComposeRequest) -> str:
    profile = format_user_profile(request.long_term_memory)
    return "" if profile == NOTHING else profile


def _date_and_time(request: ComposeRequest) -> str:
    fields = request.context.fields
    return "\n".join(
        f"{key}={_cut(fields[key].string_value)}"
        for key in _TEMPORAL_KEYS
        if key in fields and fields[key].string_value
    )


def _said(message: ConversationMessage) -> str:
    return f"{_ROLES.get(message.role, 'user')}: {_cut(message.content, _MAX_ANSWER_CHARS)}"


def _untrusted(lines: Sequence[str]) -> str:
    """What agents returned may hold text of web pages, mails, documents and database cells."""
    return mark_untrusted("\n".join(lines)[:_MAX_SECTION_CHARS]) if lines else ""


def _cut(text: str, limit: int = _MAX_TEXT_CHARS) -> str:
    """``text`` on one line and within bounds."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
