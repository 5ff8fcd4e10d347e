"""Scripted replies for the demo questions, one per model call.

Numbers and names in a reply are captured from the prompt, which holds the real result of the
agents. The `_…_capture` functions depend on the formats of the prompts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bos_demo.questions import load_every_question
from bos_demo.scripted.api import api_answer_capture, api_replies
from bos_demo.scripted.document import rag_replies
from bos_demo.scripted.mail import mail_replies
from bos_demo.scripted.report import report_text
from bos_demo.scripted.text import text_replies
from bos_demo.scripted.web import web_replies
from bos_testkit.scripted_model.replies import fixture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import date

    from bos_demo.dialects import Dialect
    from bos_demo.questions import (
        AnyStep,
        ChartsStep,
        CodeStep,
        ComputationStep,
        FilesStep,
        Question,
        SqlStep,
    )
    from bos_testkit.scripted_model.replies import Fixture

    Capture = Callable[[str, int], str]
    """Maps a slot's name and row (from 1) to the pattern of its value in a prompt."""

CONFIDENCE = 0.93
PLANNER_SCHEMA = "PlannerReply"
"""Schema of the planner's reply."""
_DATABASES: tuple[tuple[Dialect, str], ...] = (
    ("postgres", "for one PostgreSQL database"),
    ("sqlite", "for one SQLite database"),
)
"""Databases that can hold the company, by their names in prompts of the sql agent."""
_FILES = "for one DuckDB database"
"""Uploaded files, by the same."""
_SLOT = re.compile(r"\{(\w+)(?:@(\d+))?\}")


def demo_fixtures(today: date, questions: Sequence[Question] = ()) -> tuple[Fixture, ...]:
    """Return the replies for every demo question (or for `questions`), as seen from `today`."""
    replies = [
        reply
        for question in questions or load_every_question()
        for reply in question_fixtures(question, today)
    ]
    # No demo question states facts about its author.
    nothing = fixture("memory: nothing found", [], schema="PersonalFacts", json={"found": False})
    return (*replies, nothing)


def question_fixtures(question: Question, today: date) -> Iterator[Fixture]:
    """Yield the replies of planner, agents and composer for one question."""
    yield plan_reply(question)
    for step in question.steps:
        if step.agent == "sql":
            yield from sql_replies(question.id, step, today)
        elif step.agent == "code":
            yield from _code_replies(question, step)
        elif step.agent == "rag":
            yield from rag_replies(question.id, step)
        elif step.agent == "api_docs":
            yield from api_replies(question.id, step)
        elif step.agent == "web":
            yield from web_replies(question.id, step)
        elif step.agent == "files":
            yield from _files_replies(question, step)
        elif step.agent == "charts":
            yield from _charts_replies(question, step)
        elif step.agent == "text":
            yield from text_replies(question.id, step)
        elif step.agent == "mail":
            yield from mail_replies(question.id, step)
        else:
            yield from _computation_replies(question, step)
    yield from compositions(question)


def plan_reply(question: Question, *also: str) -> Fixture:
    """The planner's reply to a question, for prompts that also hold the texts of `also`."""
    steps = [
        {
            "step_id": step.id,
            "agent": step.agent,
            "task": step.task,
            "tool_name": _tool(step),
            "sub_task_input": [{"name": k, "value": v} for k, v in step.inputs.items()],
            "depends_on": list(question.depends_on(step)),
            "is_final_answer": False,
        }
        for step in question.steps
    ]
    plan = planned(question.rationale, steps, intent=question.intent)
    # The whole section of the planner's prompt, so that a longer question with this one in it, or
    # an agent's card that quotes it, does not match.
    section = f"### Question\n{question.question}\n\n### Instructions"
    return fixture(f"{question.id}: plan", [section, *also], schema=PLANNER_SCHEMA, json=plan)


def _tool(step: AnyStep) -> str | None:
    """The tool that the plan names; it has to name those that need an approval."""
    if step.agent == "api_docs" and step.approved:
        return "call_api_write"
    if step.agent == "code":
        return "execute_code"
    return (step.tool or None) if step.agent in ("web", "files", "text", "mail") else None


def planned(
    rationale: str,
    steps: Sequence[dict[str, Any]],
    *,
    intent: str = "DATA_QA",
) -> dict[str, Any]:
    """The planner's reply."""
    return {
        "rationale": rationale,
        "intent": intent,
        "confidence": CONFIDENCE,
        "entities": [],
        "steps": list(steps),
    }


def sql_replies(question_id: str, step: SqlStep, today: date) -> Iterator[Fixture]:
    """Yield the replies of the sql agent's model for one step of the question."""

    def reply(schema: str, json: dict[str, Any], *also: str, **more: Any) -> Fixture:
        name = ", ".join([f"{question_id}/{step.id}: {schema}", *also])
        return fixture(name, [_task_section(step), *also], schema=schema, json=json, **more)

    clear = {"is_clear": True, "clarifying_questions": [], "assumptions": []}
    # Small models have a call per step.
    yield reply("SchemaChoice", {"tables": list(step.tables), **clear})
    yield reply("ClarityCheck", clear)
    queries = [(step.query(dialect, today), mark) for dialect, mark in _DATABASES]
    for query, mark in [(step.sql, _FILES)] if step.file else queries:
        yield reply("GeneratedSql", {"sql": query, "notes": ""}, mark)
        draft = {
            "reasoning": f"{' and '.join(step.tables)} hold what is asked for.",
            "needs_tables": [],
            **clear,
            "sql": query,
            "used_tables": list(step.tables),
            "notes": "",
            "followups": list(step.followups),
        }
        yield reply("QueryDraft", draft, mark)
    yield reply(
        "QueryReview",
        {"checks": "It answers the task.", "is_correct": True, "corrected_sql": None},
    )
    answer, capture = fill_in(step.answer, _row_capture)
    yield reply(
        "ResultInterpretation",
        {"answer": answer, "highlights": [], "followups": []},
        capture=capture,
    )


def _computation_replies(question: Question, step: ComputationStep) -> Iterator[Fixture]:
    name = f"{question.id}/{step.id}"
    yield fixture(
        f"{name}: ComputationPlan",
        [_task_section(step)],
        schema="ComputationPlan",
        json={"explanation": step.task, "inputs": list(step.inputs), "code": step.program},
    )
    answer, capture = fill_in(step.answer, _result_capture)
    yield fixture(
        f"{name}: ComputationSummary",
        [_task_section(step)],
        schema="ComputationSummary",
        json={"answer": answer, "table": None},
        capture=capture,
    )


def _code_replies(question: Question, step: CodeStep) -> Iterator[Fixture]:
    name = f"{question.id}/{step.id}"
    yield from _program_replies(name, step, [_task_section(step)], step.program)
    for variant in step.variants:
        # With instructions the task is not a section of its own.
        program = step.program.replace(variant.replaces, variant.by)
        texts = [step.task, variant.words]
        yield from _program_replies(f"{name} {variant.words}", step, texts, program)
        yield fixture(
            f"{name} {variant.words}: Classification",
            [variant.words],
            schema="Classification",
            json={"mode": "enhance"},
        )


def _program_replies(
    name: str, step: CodeStep, texts: Sequence[str], program: str
) -> Iterator[Fixture]:
    """A scripted reply to prompts that hold these texts."""
    yield fixture(
        f"{name}: CodeProposal",
        texts,
        schema="CodeProposal",
        json={"explanation": step.explanation, "code": program},
    )
    answer, capture = fill_in(step.answer, _result_capture)
    yield fixture(
        f"{name}: CodeSummary",
        texts,
        schema="CodeSummary",
        json={"answer": answer},
        capture=capture,
    )


def _files_replies(question: Question, step: FilesStep) -> Iterator[Fixture]:
    if step.operation is not None:
        yield fixture(
            f"{question.id}/{step.id}: FileOperation",
            [_task_section(step)],
            schema="FileOperation",
            json=step.operation,
        )


def _charts_replies(question: Question, step: ChartsStep) -> Iterator[Fixture]:
    if step.choice is not None:
        yield fixture(
            f"{question.id}/{step.id}: ChartChoice",
            [_task_section(step)],
            schema="ChartChoice",
            json=step.choice,
        )


def _task_section(step: AnyStep) -> str:
    """The task section of an agent's prompt: the whole section, so that no other task matches."""
    return f"### Task\n{step.task}\n\n###"


def compositions(question: Question) -> Iterator[Fixture]:
    """The composer's replies: where all was done, and where an action was not.

    The agents' answers in plan order, with formatted amounts; where something was not done, those
    of queries alone. The section is matched whole, as for the plan.
    """
    sentences: list[str] = []
    findings: dict[str, str] = {}
    captures: dict[str, str] = {}
    queried: list[str] = []
    queried_captures: dict[str, str] = {}
    tables = api_calls = 0
    is_report = question.intent == "ANALYTICS_REPORT"
    for number, step in enumerate(question.steps, 1):
        if is_report and step.agent == "charts":
            continue
        if (
            step.agent == "rag"
            or step.agent == "web"
            or step.agent == "files"
            or step.agent == "charts"
            or step.agent == "text"
            or step.agent == "mail"
        ):
            # Whole: citations are numbered by the results there are, and files are as they are.
            key = f"step{number}_answer"
            sentences.append(f"${{{key}}}")
            captures[key] = _answer_capture(step.agent, len(agents_before(question, number)))
            continue
        if step.agent == "api_docs":
            api_calls += 1
            key = f"step{number}_answer"
            sentences.append(f"${{{key}}}")
            captures[key] = api_answer_capture(api_calls)
            continue
        if step.agent == "sql":
            tables += 1
            capture = cell_capture(step, tables)
        else:
            capture = _computed_capture()
        sentence, found = fill_in(step.answer, capture, prefix=f"step{number}_")
        sentences.append(sentence)
        findings[step.id] = sentence
        captures.update(found)
        if step.agent == "sql":
            queried.append(sentence)
            queried_captures.update(found)
    section = composer_section(question.question)
    yield fixture(
        f"{question.id}: answer without an action",
        [section, "### What was not done"],
        text=" ".join(queried) or "There is nothing else to say.",
        capture=queried_captures,
    )
    yield fixture(
        f"{question.id}: answer",
        [section],
        text=report_text(question, findings)
        if is_report
        else " ".join(sentences) or question.reply,
        capture=captures,
    )


def agents_before(question: Question, number: int) -> list[AnyStep]:
    """Steps of the same agent before the ``number``-th, counted from 1."""
    step = question.steps[number - 1]
    return [each for each in question.steps[: number - 1] if each.agent == step.agent]


def _answer_capture(agent: str, before: int) -> str:
    """Pattern of the answer of the agent's result behind so many other ones of it."""
    one = rf"Agent: {agent} \| status: [\w ,]+\. Answer: "
    return rf"(?:{one}[\s\S]*?){{{before}}}{one}([^\n]+?) Error: "


def composer_section(question: str) -> str:
    """The whole end of the composer's prompt, as another question may begin with this one."""
    return f"### Question\n{question}\n\nWrite the answer to this question now."


def fill_in(template: str, capture: Capture, prefix: str = "") -> tuple[str, dict[str, str]]:
    """Convert `template` for a fixture; returns it with the captures of its slots."""
    captures: dict[str, str] = {}

    def slot(match: re.Match[str]) -> str:
        name, row = match[1], int(match[2] or 1)
        key = f"{prefix}{name}_{row}"
        captures[key] = capture(name, row)
        return f"${{{key}}}"

    return _SLOT.sub(slot, template), captures


def _row_capture(column: str, row: int) -> str:
    """Pattern of a cell in an interpretation prompt, whose rows are JSON objects."""
    return rf'(?s)(?:.*?"{column}":){{{row}}}\s*"?([^",}}]*)'


def _result_capture(field: str, _: int) -> str:
    """Pattern of a field of the result in a summary prompt: JSON, after any program."""
    return rf'(?s).*"{field}":\s*"?([^",}}]*)'


def cell_capture(step: SqlStep, position: int) -> Capture:
    """Pattern of a cell in the composer's prompt: in the n-th Markdown table of the sql agent."""

    def capture(column: str, row: int) -> str:
        before = step.columns.index(column)
        return (
            rf"(?s:(?:.*?\nTable of sql\b){{{position}}})"
            rf"(?:[^\n]*\n){{{2 + row}}}"  # the rest of the title, head, rule, rows before
            rf"\| (?:[^\n|]* \| ){{{before}}}(?:Rs\.)?([^\n|]*?) \|"
        )

    return capture


def _computed_capture() -> Capture:
    """Pattern of a formatted number of the program's result in the composer's prompt.

    ``result.emi=Rs.11,00,712.60``, or ``result.rate=0.00345 (Rs.0.00)`` if that loses digits.
    """

    def capture(field: str, _: int) -> str:
        return rf"\nresult\.{field}=(?:[^\n(]*\()?(?:Rs\.)?(-?\d(?:[\d.,]*\d)?)"

    return capture
