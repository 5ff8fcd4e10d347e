"""The composer's scripted reply to a question for a report: main findings, then sections."""

from __future__ import annotations

from bos_demo.questions import ChartsStep, Question, SqlStep

_MAIN_FINDINGS = 2


def report_headings(question: Question) -> dict[str, str]:
    """Headings of the sections by the id of their query: the titles of the charts."""
    return {
        query: step.inputs["title"]
        for step in question.steps
        if isinstance(step, ChartsStep)
        for query in question.depends_on(step)
    }


def report_text(question: Question, findings: dict[str, str]) -> str:
    """The report, with the findings of the queries by their step ids."""
    headings = report_headings(question)
    queries = [step.id for step in question.steps if isinstance(step, SqlStep)]
    main = "\n".join(f"- {findings[each]}" for each in queries[:_MAIN_FINDINGS])
    sections = [f"## {headings[each]}\n\n{findings[each]}" for each in queries]
    return "\n\n".join([main, *sections])
