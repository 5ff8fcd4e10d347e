"""Answers held against the pages that they rest on: citations, quotations, numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit.citations import checked_markers, found_quotes, quoted_answer
from bos_chassis.links import checked_links
from bos_llm.numbers.check import ungrounded_numbers
from bos_web.evidence import cited_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.common.v1 import Source
    from bos_agentkit import AgentTask
    from bos_web.evidence import Evidence
    from bos_web.replies import WebAnswer

_LEAST_WORDS = 4
"""Lines of fewer words are headings and the like."""


def checked_answer(
    task: AgentTask, reply: WebAnswer, evidence: Sequence[Evidence]
) -> tuple[str, list[Source]] | None:
    """The model's answer and its sources; None if it cites nothing, or made up numbers.

    Addresses that are no page's are taken out of it.
    """
    texts = {number: each.shown for number, each in enumerate(evidence, 1)}
    cited = checked_markers(reply.answer, len(evidence))
    quotes, missing = found_quotes(((each.page, each.quote) for each in reply.quotations), texts)
    if cited.unknown or missing:
        task.trace.message(
            "Citations dropped", unknown_numbers=cited.unknown, quotations_not_found=missing
        )
    if not cited.numbers:
        task.trace.message("The answer cites no page; not used")
        return None
    text = checked_links(cited.text, [evidence[number - 1].url for number in cited.numbers])
    named = [f"{each.title} {each.published}" for each in evidence]
    strange = ungrounded_numbers(
        text,
        [*texts.values(), *named, task.effective_task, task.input.question, task.arguments],
    )
    if strange:
        task.trace.message("The answer holds numbers of no page; not used", numbers=strange)
        return None
    sources = [
        cited_source(evidence[number - 1], quotes.get(number, "")) for number in cited.numbers
    ]
    return text, sources


def quoted(task: AgentTask, evidence: Sequence[Evidence]) -> tuple[str, list[Source]]:
    """The best pages in their own words."""
    asked = f"{task.effective_task} {task.input.question}"
    quotes = quoted_answer(asked, [_sentences(each.shown) for each in evidence])
    lines = [
        f"- “{' '.join(quote.split())}” [{place}]" for place, (_, quote) in enumerate(quotes, 1)
    ]
    sources = [cited_source(evidence[number - 1], quote) for number, quote in quotes]
    return "The web says:\n" + "\n".join(lines), sources


def _sentences(text: str) -> str:
    """The lines of a text that may be sentences; all of it where none may be."""
    lines = [line for line in text.splitlines() if len(line.split()) >= _LEAST_WORDS]
    return "\n".join(lines) or text
