"""Deterministic answer without a model, assembled from the results. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from bos.agent.v1 import AgentResult
from bos.composer.v1 import ComposeRequest
from bos.planner.v1 import Intent
from bos_composer.citations import Citations
from bos_composer.numbers import NumberFormat
from bos_composer.outcomes import (
    error_text,
    not_done,
    reason,
    safe_line,
    succeeded,
    unstated_assumptions,
    unstated_caveats,
    was_not_done,
    words_without_text,
)
from bos_composer.prompts import HEADINGS
from bos_composer.reports import plain_finding, report_sections
from bos_composer.tables import markdown, units, values

NO_DATA = "No data was returned."
OUT_OF_SCOPE = (
    "I am sorry, this is outside of what I can help with. "
    "I answer questions with the help of the connected agents and their data."
)
NEEDS_MODEL = "This question can be answered by a language model only, and none is available now."
NOTHING_FOUND = "This could not be answered."
INCOMPLETE = "The answer is incomplete."
TRIED_BEFORE = "What was tried before did not work either:"
_MAX_ROWS = 10
_MAX_TRIED = 5
# Long enough to distinguish errors, and shorter than the stored part of any message.
_COMPARED_CHARS = 200


def plain_answer(request: ComposeRequest, citations: Citations, numbers: NumberFormat) -> str:
    """Answers in planner order with small tables, then failures and their reasons.

    Those of a report stand under the headings of their sections.

    Numbers are formatted by locale; texts of agents are not changed.
    """
    if not request.results:
        parts = [_without_results(request.intent.intent)]
    else:
        parts = [*_parts(request, citations, numbers)]
        text = "\n".join(parts)
        lacking = (
            unstated_assumptions(text, request.results),
            unstated_caveats(text, request.results),
        )
        parts += [each for each in lacking if each]
        parts += _tried_before(request)
    remarks = [" ".join(remark.split()) for remark in request.remarks]
    return "\n\n".join([*parts, *(remark for remark in remarks if remark)])


def _without_results(intent: Intent) -> str:
    if intent == Intent.INTENT_OUT_OF_SCOPE:
        return OUT_OF_SCOPE
    return NEEDS_MODEL if intent == Intent.INTENT_GENERAL_QA else NO_DATA


def _parts(request: ComposeRequest, citations: Citations, numbers: NumberFormat) -> Iterator[str]:
    results = request.results
    sections = report_sections(request, HEADINGS)
    if sections:
        found = [
            f"## {section.heading}\n\n{plain_finding(section, results, citations, numbers)}"
            for section in sections
        ]
    else:
        found = [
            _found(result, answer, numbers)
            for result, answer in zip(results, citations.answers, strict=True)
            if succeeded(result)
        ]
    produced = [text for text in found if text]
    failed = (each for each in results if not was_not_done(each))
    reasons = list(dict.fromkeys(text for text in map(reason, failed) if text))
    yield from not_done(results)
    yield from produced
    if found and not produced:
        yield NO_DATA
    if reasons:
        yield INCOMPLETE if found else NOTHING_FOUND
        yield "\n".join(f"- {text}" for text in reasons)


def _tried_before(request: ComposeRequest) -> Iterator[str]:
    """Errors of earlier attempts, which are in no result of the last one."""
    shown = [text[:_COMPARED_CHARS] for text in map(error_text, request.results) if text]
    errors = map(safe_line, request.working_context.errors_encountered)
    lines = [line for line in errors if not any(text in line for text in shown)]
    if lines:
        yield TRIED_BEFORE
        yield "\n".join(f"- {line}" for line in lines[-_MAX_TRIED:])


def _found(result: AgentResult, answer: str, numbers: NumberFormat) -> str:
    pieces = [answer.strip() or words_without_text(result)]
    if result.table.rows:
        pieces.append(markdown(result.table, numbers, max_rows=_MAX_ROWS))
    elif not pieces[0] and not result.HasField("table"):
        declared = units(result)
        pieces += [
            f"- {_label(name)}: {numbers.cell(name, value, declared.get(name, ''))}"
            for name, value in values(result)
        ]
    return "\n\n".join(piece for piece in pieces if piece)


def _label(name: str) -> str:
    return name.rpartition(".")[2].replace("_", " ")
