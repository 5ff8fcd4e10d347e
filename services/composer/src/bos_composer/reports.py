"""Sections of a report: which results belong together, and what an answer says under each. Pure.

A section is a result with its charts: the heading is the chart's title, else the step's task. The
model writes the findings below these headings; a section that it leaves out, or all of them where
there is no model, are put together from the results.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from bos.agent.v1 import AgentResult
from bos.common.v1 import ReportSection
from bos.composer.v1 import ComposeRequest
from bos.planner.v1 import Intent
from bos_composer.citations import Citations
from bos_composer.numbers import NumberFormat
from bos_composer.outcomes import succeeded
from bos_composer.tables import markdown

_MIN_SECTIONS = 2
_MAX_SECTIONS = 12
_MAX_HEADING_CHARS = 90
_MAX_HIGHLIGHTS = 5
_MAX_HIGHLIGHT_CHARS = 300
_MAX_ROWS = 10
_SECTION_LEVEL = 2
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
_BULLET = re.compile(r"^ {0,3}[-*•][ \t]+(.+)$", re.MULTILINE)
_EMPHASIS = re.compile(r"\*\*|__")


@dataclass(slots=True)
class Section:
    """One section: its heading, and the results that it rests on."""

    heading: str
    results: list[int] = field(default_factory=list)
    """Places in the request's results, from 0; the charts' ones last."""


def report_sections(request: ComposeRequest, reserved: Collection[str]) -> list[Section]:
    """Sections of the answer; none if it is no report, or has too few parts for one.

    Args:
        request: Question, intent and results.
        reserved: Headings that no section may have.
    """
    if request.intent.intent != Intent.INTENT_ANALYTICS_REPORT:
        return []
    sections: list[Section] = []
    of_step: dict[str, Section] = {}
    charted: set[int] = set()
    for place, (result, step_id) in enumerate(zip(request.results, step_ids(request), strict=True)):
        if not succeeded(result):
            continue
        drawn_of = next((of_step[each] for each in result.depends_on if each in of_step), None)
        if drawn_of is None or not result.charts:
            drawn_of = Section(_one_line(result.task_description))
            sections.append(drawn_of)
        if result.charts and id(drawn_of) not in charted:
            charted.add(id(drawn_of))
            drawn_of.heading = _one_line(result.charts[0].title) or drawn_of.heading
        drawn_of.results.append(place)
        of_step[step_id] = drawn_of
    if not _MIN_SECTIONS <= len(sections) <= _MAX_SECTIONS:
        return []
    _make_distinct(sections, reserved)
    return sections


def step_ids(request: ComposeRequest) -> list[str]:
    """Step of each result; of a gateway that names none, the result's instance id."""
    if len(request.step_ids) == len(request.results):
        return list(request.step_ids)
    return [result.agent_id for result in request.results]


def section_list(sections: Sequence[Section], results: Sequence[AgentResult]) -> Iterator[str]:
    """Lines of the prompt: the heading of each section and the results it rests on."""
    for section in sections:
        names = ", ".join(results[place].agent_id or "?" for place in section.results)
        yield f"## {section.heading} (results of {names})"


def plain_finding(
    section: Section,
    results: Sequence[AgentResult],
    citations: Citations,
    numbers: NumberFormat,
) -> str:
    """What a section says without a model: answers, then the table, as elsewhere."""
    parts = []
    for place in section.results:
        parts.append(citations.answers[place].strip())
        if results[place].table.rows:
            parts.append(markdown(results[place].table, numbers, max_rows=_MAX_ROWS))
    return "\n\n".join(part for part in parts if part)


def plain_highlights(
    sections: Sequence[Section], results: Sequence[AgentResult], citations: Citations
) -> list[str]:
    """What the charts say of themselves: their highest and lowest values."""
    drawn = [
        citations.answers[place]
        for section in sections
        for place in section.results
        if results[place].charts
    ]
    return [_short(text) for text in drawn if text.strip()][:_MAX_HIGHLIGHTS]


def written_findings(answer: str, sections: Sequence[Section]) -> dict[str, str]:
    """Text of an answer under the heading of each section; sections left out are missing."""
    known = {_key(section.heading): section.heading for section in sections}
    marks = [
        mark
        for mark in _HEADING.finditer(answer)
        # Lower ones divide a section.
        if len(mark[1]) <= _SECTION_LEVEL or _key(mark[2]) in known
    ]
    ends = [*(mark.start() for mark in marks[1:]), len(answer)]
    findings: dict[str, str] = {}
    for mark, end in zip(marks, ends, strict=False):
        heading = known.get(_key(mark[2]))
        text = answer[mark.end() : end].strip()
        if heading is not None and text and heading not in findings:
            findings[heading] = text
    return findings


def written_highlights(answer: str) -> list[str]:
    """List before the first heading, or the first paragraph there without one."""
    first = _HEADING.search(answer)
    opening = answer[: first.start()] if first else ""
    found = [match[1] for match in _BULLET.finditer(opening)]
    if not found:
        found = [part for part in opening.split("\n\n") if part.strip()][:1]
    return [_short(text) for text in found][:_MAX_HIGHLIGHTS]


def numbered_sections(
    sections: Sequence[Section],
    findings: Sequence[str],
    request: ComposeRequest,
    citations: Citations,
) -> list[ReportSection]:
    """Sections for clients, with places of charts and sources in the answer's lists."""
    results, steps = request.results, step_ids(request)
    ends = list(accumulate(len(result.charts) for result in results))
    return [
        ReportSection(
            heading=section.heading,
            finding=finding,
            step_ids=[steps[place] for place in section.results],
            charts=[
                number
                for place in section.results
                for number in range(ends[place] - len(results[place].charts) + 1, ends[place] + 1)
            ],
            sources=dict.fromkeys(
                number for place in section.results for number in citations.numbers[place]
            ),
        )
        for section, finding in zip(sections, findings, strict=True)
    ]


def _make_distinct(sections: Sequence[Section], reserved: Collection[str]) -> None:
    """Number headings that repeat, are empty, or could be mistaken for those of the prompt."""
    taken = {_key(each) for each in reserved}
    for number, section in enumerate(sections, 1):
        heading = section.heading or "Result"
        if _key(heading) in taken or not section.heading:
            heading = f"{heading} ({number})"
        section.heading = heading
        taken.add(_key(heading))


def _key(heading: str) -> str:
    return " ".join(_EMPHASIS.sub("", heading).casefold().split()).rstrip(".:")


def _one_line(text: str) -> str:
    line = " ".join(text.replace("#", " ").replace("<", " ").split()).rstrip(".")
    return line if len(line) <= _MAX_HEADING_CHARS else f"{line[: _MAX_HEADING_CHARS - 1]}…"


def _short(text: str) -> str:
    line = " ".join(_EMPHASIS.sub("", text).split())
    return line if len(line) <= _MAX_HIGHLIGHT_CHARS else f"{line[: _MAX_HIGHLIGHT_CHARS - 1]}…"
