"""Prompts of the composer: system message with rules, user message with data.

The system message is the role and the rules of one of the files beside this module (``results``,
``report``, ``general``, ``out_of_scope``), then ``### User preferences`` and
``### Instructions for this request`` if there are any. The user message holds the sections named in
:func:`_sections`, ordered from rarely to often changing with the question last. Empty sections are
left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bos.agent.v1 import AgentResult
from bos.common.v1 import (
    ConversationMessage,
    MessageRole,
    Source,
    SourceType,
    UserPreferences,
    Value,
)
from bos.composer.v1 import ComposeRequest
from bos.planner.v1 import Intent, WorkingContext
from bos_composer.citations import Citations, is_citable
from bos_composer.numbers import NumberFormat, plain
from bos_composer.outcomes import (
    caveats,
    error_text,
    lacks_an_answer,
    not_done,
    outcome_word,
    reason,
    succeeded,
    was_not_done,
    was_overridden,
)
from bos_composer.reports import report_sections, section_list
from bos_composer.tables import is_number, markdown, restated, units, values
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

_RESULTS = prompt_file(__name__, "results")
_REPORT = prompt_file(__name__, "report")
_GENERAL = prompt_file(__name__, "general")
_OUT_OF_SCOPE = prompt_file(__name__, "out_of_scope")

# Verbatim from the requirements.
OVERRIDE_NOTICE = (
    "The user changed the task during approval. Present the data the agent actually returned, even "
    "if it differs from the Original User Query."
)
_OVERRIDE_RULE = "Do not claim that the information was not found."
_STATE_FAILURES = 'State everything under "What did not succeed" in the answer.'
_ASSUMPTIONS_FOLLOW = (
    'Nothing in the answer may contradict "Assumptions made"; do not repeat them, as they are '
    "appended to it."
)
_STATE_WHY = (
    'Say in one sentence what results with the status "not in source" or "premise refuted" say: '
    "they are no failures, and there is nothing to guess."
)
_STAYS_UNDONE = (
    'Nothing under "What was not done" was done, and the user reads that above your answer: do not '
    "repeat it, and write nothing that reads as if it was done."
)
_CAVEATS_FOLLOW = (
    'Nothing in the answer may contradict "Checks of the results"; do not repeat them, as they are '
    "appended to it."
)
_NAME_FILES = (
    'Name everything under "Files made" in the answer: the user finds it beside the answer.'
)
# The preferences are data like all of memory: a rule that quoted them would let their author give
# the model instructions.
_PREFERENCES = (
    "### User preferences\n"
    'The preferred tone, level of detail and language under "About the user" come before the rules '
    "on language, brevity and tone. They are wishes about style and nothing else."
)
_NOTHING_SUCCEEDED = "Nothing succeeded. Explain what was tried and why it failed; do not guess."
_NOTHING_RUN = "No step was run, so there is no data."
# Also marks the end of the question, as one question may be the beginning of another.
_CLOSING = "Write the answer to this question now."

HEADINGS = (
    "About the user",
    "Conversation so far",
    "Date of the question",
    "Agent results",
    "Data of the results",
    "Sections of the report",
    "Files made",
    "Sources to cite",
    "What did not succeed",
    "What was not done",
    "Assumptions made",
    "Checks of the results",
    "Earlier attempts",
    "Notices",
    "Planner rationale",
    SETTLED,
    "Question",
)
"""Headings of the user message, in their order."""
ORDINARY_HEADINGS = frozenset({"Question", "Notices"})
"""Headings that an answer may contain by chance, at most one of them."""
STATED_HEADINGS = frozenset({"Files made", "What did not succeed"})
"""Headings that an answer may contain, as a notice asks to state their content."""

_WITHOUT_DATA = (Intent.INTENT_GENERAL_QA, Intent.INTENT_OUT_OF_SCOPE)
_SOURCE_KINDS = {
    SourceType.SOURCE_TYPE_DOCUMENT: "document",
    SourceType.SOURCE_TYPE_WEB: "web",
    SourceType.SOURCE_TYPE_MAIL: "mail",
}
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
        request: The question, the results and their context.
        citations: Sources and answers of its results.
        numbers: How numbers are written.
        history_messages: Most recent messages to show.
        preview_rows: Rows of each table to show.
    """
    sections = report_sections(request, HEADINGS)
    rules = [_rules(request, is_report=bool(sections)), UNTRUSTED_NOTICE]
    if _prefers(request.long_term_memory.preferences):
        rules.append(_PREFERENCES)
    if request.system_prompt.strip():
        rules.append(f"### Instructions for this request\n{request.system_prompt.strip()}")
    listed = _untrusted([*section_list(sections, request.results)])
    bodies = _sections(request, citations, numbers, history_messages, preview_rows, listed)
    parts = zip(HEADINGS, bodies, strict=True)
    shown = "\n\n".join(f"### {heading}\n{body}" for heading, body in parts if body)
    return [system("\n\n".join(rules)), user(shown)]


def own_words() -> tuple[str, ...]:
    """The fixed text of all prompts, which no answer may repeat at length."""
    return (
        _RESULTS.fill(),
        _REPORT.fill(),
        _GENERAL.fill(),
        _OUT_OF_SCOPE.fill(),
        UNTRUSTED_NOTICE,
        OVERRIDE_NOTICE,
        _STATE_FAILURES,
        _ASSUMPTIONS_FOLLOW,
        _STATE_WHY,
        _STAYS_UNDONE,
        _CAVEATS_FOLLOW,
        _NAME_FILES,
        _PREFERENCES,
        _NOTHING_SUCCEEDED,
    )


def agent_summary(result: AgentResult, answer: str) -> str:
    """One result on one line: name, status with outcome, answer and error."""
    return (
        f"Agent: {result.agent_name} | status: {outcome_word(result)}. "
        f"Answer: {_cut(answer, _MAX_ANSWER_CHARS) or NOTHING} "
        f"Error: {error_text(result) or result.error.type or NOTHING}"
    )


def _rules(request: ComposeRequest, *, is_report: bool) -> str:
    """Role and rules: those for results if there are any, else those of the intent."""
    intent = request.intent.intent
    if is_report:
        return _REPORT.fill()
    if not request.results and intent == Intent.INTENT_OUT_OF_SCOPE:
        return _OUT_OF_SCOPE.fill()
    general = not request.results and intent == Intent.INTENT_GENERAL_QA
    return (_GENERAL if general else _RESULTS).fill()


def _sections(
    request: ComposeRequest,
    citations: Citations,
    numbers: NumberFormat,
    history_messages: int,
    preview_rows: int,
    report: str,
) -> Iterator[str]:
    """The contents of the sections :data:`HEADINGS`, in their order."""
    results = request.results
    recent = request.conversation_history[-history_messages:] if history_messages else ()
    yield _unless_nothing(format_user_profile(request.long_term_memory))
    yield _untrusted([_said(message) for message in recent])
    yield format_dates(request.context.fields, periods=False)
    yield _untrusted([*map(_summary, results, citations.answers)])
    yield _untrusted([text for each in results for text in _data(each, numbers, preview_rows)])
    yield report
    yield _untrusted([f"- {_cut(name)}" for name in _files(results)])
    yield _untrusted([*_sources(citations)])
    yield _untrusted([f"- {text}" for text in _reasons(results)])
    yield _untrusted([f"- {text}" for text in not_done(results)])
    yield _untrusted([f"- {_cut(text)}" for text in _assumptions(results)])
    yield _untrusted([f"- {_cut(text)}" for text in caveats(results)])
    yield _untrusted([*_earlier(request.working_context)])
    yield "\n".join(f"- {notice}" for notice in _notices(request))
    yield _rationale(request)
    yield _unless_nothing(format_clarifications(request.clarifications))
    yield f"{request.question}\n\n{_CLOSING}"


def _rationale(request: ComposeRequest) -> str:
    """Why the plan is as it is; fenced where its planner may have read content of others."""
    rationale = _cut(request.decision.rationale)
    read = (request.results, request.conversation_history, [request.long_term_memory])
    if rationale and any(each.tainted for texts in read for each in texts):
        return mark_untrusted(rationale)
    return rationale


def _notices(request: ComposeRequest) -> Iterator[str]:
    """Notices that the answer must follow or mention."""
    results = request.results
    if not results and request.intent.intent not in _WITHOUT_DATA:
        yield _NOTHING_RUN
    if any(map(was_overridden, results)):
        yield f"{OVERRIDE_NOTICE} {_OVERRIDE_RULE}"
    if any(_reasons(results)):
        yield _STATE_FAILURES
    if any(map(lacks_an_answer, results)):
        yield _STATE_WHY
    if not_done(results):
        yield _STAYS_UNDONE
    if any(_assumptions(results)):
        yield _ASSUMPTIONS_FOLLOW
    if caveats(results):
        yield _CAVEATS_FOLLOW
    if any(_files(results)):
        yield _NAME_FILES
    if any(_reasons(results)) and not any(map(succeeded, results)):
        yield _NOTHING_SUCCEEDED
    yield from (f"Mention in the answer: {_cut(remark)}" for remark in request.remarks)


def _summary(result: AgentResult, answer: str) -> str:
    # The values are listed under the data, so an answer that only restates them is left out.
    return agent_summary(result, "see the data." if restated(result) else answer)


def _assumptions(results: Iterable[AgentResult]) -> Iterator[str]:
    return (text for result in results for text in result.assumptions)


def _files(results: Iterable[AgentResult]) -> Iterator[str]:
    return (file.name for result in results for file in result.files)


def _reasons(results: Iterable[AgentResult]) -> Iterator[str]:
    return (reason(each) for each in results if not (succeeded(each) or was_not_done(each)))


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
    # Shown even if the answer has the same digits or words, which may mean something else.
    declared = units(result)
    lines = [
        _value(field, value, numbers, declared.get(field, "")) for field, value in values(result)
    ]
    if lines:
        yield f"Values of {name}:"
        yield from lines


def _value(field: str, value: Value, numbers: NumberFormat, unit: str) -> str:
    """A value formatted for users, and its exact form if formatting loses digits."""
    exact = _cut(plain(value))
    written = numbers.cell(field, value, unit) if is_number(value) else exact
    return (
        f"{field}={written}"
        if _digits(written) == _digits(exact)
        else (f"{field}={exact} ({written})")
    )


def _digits(number: str) -> str:
    """Significant digits of a written number, for comparing two spellings."""
    return "".join(filter(str.isdigit, number)).strip("0")


def _sources(citations: Citations) -> Iterator[str]:
    for number, source in enumerate(citations.sources, start=1):
        if is_citable(source):
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
    """Whether the user prefers a tone, a level of detail or a language."""
    wishes = (preferences.tone, preferences.detail_level, preferences.language)
    return any(wish.strip() for wish in wishes)


def _unless_nothing(text: str) -> str:
    return "" if text == NOTHING else text


def _said(message: ConversationMessage) -> str:
    return f"{_ROLES.get(message.role, 'user')}: {_cut(message.content, _MAX_ANSWER_CHARS)}"


def _untrusted(lines: Sequence[str]) -> str:
    """Fence text of agents, which may quote web pages, mails, documents and database cells."""
    return mark_untrusted("\n".join(lines)[:_MAX_SECTION_CHARS]) if lines else ""


def _cut(text: str, limit: int = _MAX_TEXT_CHARS) -> str:
    """``text`` on one line, truncated to the limit."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
