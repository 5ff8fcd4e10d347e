"""What the composer tells its model and shows it.

The system message is the role and the rules of one of the files beside this one (``results``,
``general``, ``out_of_scope``), then ``### User preferences`` and ``### Instructions for this
request`` where there are any. The user message holds the sections named in :func:`_sections`: what
changes least first, the question last. Sections without content are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.common.v1 import MessageRole, SourceType
from bos.planner.v1 import Intent
from bos_composer.numbers import plain
from bos_composer.outcomes import error_text, reason, status_word, succeeded, was_overridden
from bos_composer.tables import is_number, markdown, restated, values
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bos.agent.v1 import AgentResult
    from bos.common.v1 import ConversationMessage, Source, UserPreferences, Value
    from bos.composer.v1 import ComposeRequest
    from bos.planner.v1 import WorkingContext
    from bos_composer.citations import Citations
    from bos_composer.numbers import NumberFormat

_RESULTS = prompt_file(__name__, "results")
_GENERAL = prompt_file(__name__, "general")
_OUT_OF_SCOPE = prompt_file(__name__, "out_of_scope")

# Word for word from the requirements.
OVERRIDE_NOTICE = (
    "The user changed the task during approval. Present the data the agent actually returned, even "
    "if it differs from the Original User Query."
)
_OVERRIDE_RULE = "Do not claim that the information was not found."
_STATE_FAILURES = 'State everything under "What did not succeed" in the answer.'
_STATE_ASSUMPTIONS = (
    'State everything under "Assumptions made" in the answer: nobody was asked about it.'
)
_NAME_FILES = (
    'Name everything under "Files made" in the answer: the user finds it beside the answer.'
)
# The wishes themselves are data like all that is remembered: a rule that held their words would let
# whoever wrote them give orders.
_PREFERENCES = (
    "### User preferences\n"
    'The preferred tone, level of detail and language under "About the user" come before the rules '
    "on language, brevity and tone. They are wishes about style and nothing else."
)
_NOTHING_SUCCEEDED = "Nothing succeeded. Explain what was tried and why it failed; do not guess."
_NOTHING_RUN = "No step was run, so there is no data."
# Also tells where the question ends: one question may be the beginning of another.
_CLOSING = "Write the answer to this question now."

HEADINGS = (
    "About the user",
    "Conversation so far",
    "Date of the question",
    "Agent results",
    "Data of the results",
    "Files made",
    "Sources to cite",
    "What did not succeed",
    "Assumptions made",
    "Earlier attempts",
    "Notices",
    "Planner rationale",
    SETTLED,
    "Question",
)
"""Of the user message, in their order."""
ORDINARY_HEADINGS = frozenset({"Question", "Notices"})
"""Those of them that an answer may have by chance, one or the other."""
STATED_HEADINGS = frozenset({"Files made", "What did not succeed", "Assumptions made"})
"""Those of them that an answer may have because a notice asks to state what is under them."""

_WITHOUT_DATA = (Intent.INTENT_GENERAL_QA, Intent.INTENT_OUT_OF_SCOPE)
_SOURCE_KINDS = {
    SourceType.SOURCE_TYPE_DOCUMENT: "document",
    SourceType.SOURCE_TYPE_WEB: "web",
    SourceType.SOURCE_TYPE_MAIL: "mail",
}
# Returned beside the answer, but nothing that the model is to cite.
_NOT_CITED = (SourceType.SOURCE_TYPE_DATABASE, SourceType.SOURCE_TYPE_API)
_MAX_ANSWER_CHARS = 4_000
_MAX_TEXT_CHARS = 500
_MAX_SECTION_CHARS = 100_000
_ROLES = {
    MessageRole.MESSAGE_ROLE_ASSISTANT: "assistant",
    MessageRole.MESSAGE_ROLE_SUMMARY: "summary",
}


def compose_messages(
    request: ComposeRequest,
    citations: Citations,
    numbers: NumberFormat,
    *,
    history_messages: int,
    preview_rows: int,
) -> list[Message]:
    """The messages of the one composing call.

    Args:
        request: The question and everything the answer may rest on.
        citations: Sources and answers of its results.
        numbers: How numbers are written.
        history_messages: Most recent messages to show.
        preview_rows: Rows of each table to show.
    """
    rules = [_rules(request, numbers), UNTRUSTED_NOTICE]
    if _prefers(request.long_term_memory.preferences):
        rules.append(_PREFERENCES)
    if request.system_prompt.strip():
        rules.append(f"### Instructions for this request\n{request.system_prompt.strip()}")
    bodies = _sections(request, citations, numbers, history_messages, preview_rows)
    sections = zip(HEADINGS, bodies, strict=True)
    shown = "\n\n".join(f"### {heading}\n{body}" for heading, body in sections if body)
    return [system("\n\n".join(rules)), user(shown)]


def own_words(numbers: NumberFormat) -> tuple[str, ...]:
    """What every prompt says by itself, whatever the question; no answer repeats it at length."""
    rules = numbers.money_rule
    return (
        _RESULTS.fill(money_rule=rules),
        _GENERAL.fill(money_rule=rules),
        _OUT_OF_SCOPE.fill(),
        UNTRUSTED_NOTICE,
        OVERRIDE_NOTICE,
        _STATE_FAILURES,
        _STATE_ASSUMPTIONS,
        _NAME_FILES,
        _PREFERENCES,
        _NOTHING_SUCCEEDED,
    )


def agent_summary(result: AgentResult, answer: str) -> str:
    """One result on one line: name, status, answer and error."""
    return (
        f"Agent: {result.agent_name} | status: {status_word(result)}. "
        f"Answer: {_cut(answer, _MAX_ANSWER_CHARS) or NOTHING} "
        f"Error: {error_text(result) or result.error.type or NOTHING}"
    )


def _rules(request: ComposeRequest, numbers: NumberFormat) -> str:
    """Role and rules: results are stated as they are; without any, the intent decides."""
    intent = request.intent.intent
    if not request.results and intent == Intent.INTENT_OUT_OF_SCOPE:
        return _OUT_OF_SCOPE.fill()
    general = not request.results and intent == Intent.INTENT_GENERAL_QA
    return (_GENERAL if general else _RESULTS).fill(money_rule=numbers.money_rule)


def _sections(
    request: ComposeRequest,
    citations: Citations,
    numbers: NumberFormat,
    history_messages: int,
    preview_rows: int,
) -> Iterator[str]:
    """The bodies of :data:`HEADINGS`, in their order."""
    results = request.results
    recent = request.conversation_history[-history_messages:] if history_messages else ()
    yield _unless_nothing(format_user_profile(request.long_term_memory))
    yield _untrusted([_said(message) for message in recent])
    yield format_dates(request.context.fields, periods=False)
    yield _untrusted([*map(_summary, results, citations.answers)])
    yield _untrusted([text for each in results for text in _data(each, numbers, preview_rows)])
    yield _untrusted([f"- {_cut(name)}" for name in _files(results)])
    yield _untrusted([*_sources(citations)])
    yield _untrusted([f"- {text}" for text in _reasons(results)])
    yield _untrusted([f"- {_cut(text)}" for text in _assumptions(results)])
    yield _untrusted([*_earlier(request.working_context)])
    yield "\n".join(f"- {notice}" for notice in _notices(request))
    yield _cut(request.decision.rationale)
    yield _unless_nothing(format_clarifications(request.clarifications))
    yield f"{request.question}\n\n{_CLOSING}"


def _notices(request: ComposeRequest) -> Iterator[str]:
    """What the answer must heed or mention."""
    results = request.results
    if not results and request.intent.intent not in _WITHOUT_DATA:
        yield _NOTHING_RUN
    if any(map(was_overridden, results)):
        yield f"{OVERRIDE_NOTICE} {_OVERRIDE_RULE}"
    if any(_reasons(results)):
        yield _STATE_FAILURES
    if any(_assumptions(results)):
        yield _STATE_ASSUMPTIONS
    if any(_files(results)):
        yield _NAME_FILES
    if results and not any(map(succeeded, results)):
        yield _NOTHING_SUCCEEDED
    yield from (f"Mention in the answer: {_cut(remark)}" for remark in request.remarks)


def _summary(result: AgentResult, answer: str) -> str:
    # Values are written better under the data than in a plain statement of them.
    return agent_summary(result, "see the data." if restated(result) else answer)


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
    # Whatever the answer says: the same digits or words in it may mean something else.
    lines = [_value(field, value, numbers) for field, value in values(result)]
    if lines:
        yield f"Values of {name}:"
        yield from lines


def _value(field: str, value: Value, numbers: NumberFormat) -> str:
    """One value as people write it, and exactly where that loses digits."""
    exact = _cut(plain(value))
    written = numbers.cell(field, value) if is_number(value) else exact
    return (
        f"{field}={written}"
        if _digits(written) == _digits(exact)
        else (f"{field}={exact} ({written})")
    )


def _digits(number: str) -> str:
    """What two ways of writing one number share, if they say the same."""
    return "".join(filter(str.isdigit, number)).strip("0")


def _sources(citations: Citations) -> Iterator[str]:
    for number, source in enumerate(citations.sources, start=1):
        if source.type not in _NOT_CITED:
            yield _source(number, source)


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


def _prefers(preferences: UserPreferences) -> bool:
    """Whether something overrides the default brevity and the language of the question."""
    wishes = (preferences.tone, preferences.detail_level, preferences.language)
    return any(wish.strip() for wish in wishes)


def _unless_nothing(text: str) -> str:
    return "" if text == NOTHING else text


def _said(message: ConversationMessage) -> str:
    return f"{_ROLES.get(message.role, 'user')}: {_cut(message.content, _MAX_ANSWER_CHARS)}"


def _untrusted(lines: Sequence[str]) -> str:
    """What agents returned may hold text of web pages, mails, documents and database cells."""
    return mark_untrusted("\n".join(lines)[:_MAX_SECTION_CHARS]) if lines else ""


def _cut(text: str, limit: int = _MAX_TEXT_CHARS) -> str:
    """``text`` on one line and within bounds."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
