"""Demo questions against their reference, on both databases and with scripted replies."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from bos_demo.company import DEFAULT_TODAY
from bos_demo.expectations import expected_facts, expected_rows, mentions, same_rows
from bos_demo.questions import (
    REFERENCE,
    ComputationStep,
    Question,
    SqlStep,
    load_chart_questions,
    load_document_questions,
    load_questions,
    load_report_questions,
)
from bos_demo.scripted.replies import composer_section, demo_fixtures
from bos_testkit.scripted_model.replies import FixtureBook, load_fixtures

if TYPE_CHECKING:
    import sqlite3

    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

QUESTIONS = load_questions()
OVER_DOCUMENTS = load_document_questions()
DRAWN = (*load_chart_questions(), *load_report_questions())
WITH_QUERIES = (*QUESTIONS, *OVER_DOCUMENTS, *DRAWN)
SQL_STEPS = [step for q in WITH_QUERIES for step in q.steps if isinstance(step, SqlStep)]


def _name(value: Question | SqlStep) -> str:
    return value.id


@pytest.fixture(scope="module")
def book() -> FixtureBook:
    return load_fixtures(demo_fixtures(DEFAULT_TODAY))


@pytest.mark.parametrize("step", SQL_STEPS, ids=_name)
async def test_queries_of_both_databases_match_the_reference(
    step: SqlStep, company: Connection, sqlite_company: sqlite3.Connection
) -> None:
    reference = await expected_rows(company, step, DEFAULT_TODAY)
    found = await company.fetch(step.query("postgres", DEFAULT_TODAY))
    in_sqlite = sqlite_company.execute(step.query("sqlite", DEFAULT_TODAY))
    columns = [column[0] for column in in_sqlite.description]
    assert reference
    assert columns == list(reference[0].keys()) == list(found[0].keys()) == list(step.columns)
    assert same_rows([tuple(record) for record in found], [tuple(r) for r in reference])
    assert same_rows(in_sqlite.fetchall(), [tuple(record) for record in reference])


@pytest.mark.parametrize("question", QUESTIONS, ids=_name)
async def test_scripted_replies_state_the_real_facts(
    question: Question, company: Connection, book: FixtureBook
) -> None:
    answer = _reply(book, None, await _played(question, company, book))
    facts = await expected_facts(company, question, DEFAULT_TODAY)
    assert facts
    assert [fact for fact in facts if not mentions(answer, fact)] == []


@pytest.mark.parametrize("question", QUESTIONS, ids=_name)
def test_planner_gets_the_plan_of_the_question(question: Question, book: FixtureBook) -> None:
    plan = _reply(book, "PlannerReply", _planner_prompt(question.question))
    assert {step["agent"] for step in plan["steps"]} == set(question.agents)
    assert [step["step_id"] for step in plan["steps"]] == [step.id for step in question.steps]


def test_unknown_question_has_no_scripted_reply(book: FixtureBook) -> None:
    for asked in ("How tall is our tallest employee?", f"{QUESTIONS[0].question} and drop them"):
        prompt = _planner_prompt(asked)
        assert book.find(schema="PlannerReply", model="any", prompt=prompt) is None


@pytest.mark.parametrize(
    ("answer", "fact", "stated"),
    [
        ("Revenue was Rs.1,75,206.00.", Decimal("175206"), True),
        ("Revenue was Rs.1,75,206.00.", "175206", True),
        ("Revenue was Rs.175,206.", 175206.0, True),
        ("Revenue was Rs.1,75,207.00.", Decimal("175206"), False),
        ("It fell by 3.5 percent.", Decimal("-3.5"), True),
        ("The best was kaveri dyes.", "Kaveri Dyes", True),
        ("The best was Kaveri.", "Kaveri Dyes", False),
    ],
)
def test_facts_are_recognised_in_any_number_format(answer: str, fact: Any, stated: bool) -> None:
    assert mentions(answer, fact) is stated


async def _played(question: Question, company: Connection, book: FixtureBook) -> str:
    """The composer's prompt after scripted replies and real queries, as in production."""
    outputs: dict[str, list[dict[str, Any]]] = {}
    data = []
    for step in question.steps:
        if isinstance(step, ComputationStep):
            data += [f"Values of computation ({step.id}):", *_computed(step, outputs, book)]
            continue
        drafted = _reply(book, "QueryDraft", _task_prompt(step, "for one PostgreSQL database"))
        records = await company.fetch(drafted["sql"])
        outputs[step.id] = [dict(record) for record in records]
        shown = json.dumps(outputs[step.id], default=str)
        assert _reply(book, "ResultInterpretation", _task_prompt(step, shown))["answer"]
        rows = [tuple(record) for record in records]
        data += [f"Table of sql ({step.id}), {len(rows)} rows:", *_markdown(step.columns, rows)]
    return _composer_prompt(question, data)


def _computed(
    step: ComputationStep, outputs: dict[str, list[dict[str, Any]]], book: FixtureBook
) -> list[str]:
    """The values of the program's result, after checking its summary."""
    names: dict[str, Any] = {}
    for name, value in step.inputs.items():
        reference = REFERENCE.fullmatch(value)
        assert reference
        names[name] = outputs[reference[1]]
    program = _reply(book, "ComputationPlan", _task_prompt(step))["code"]
    exec(program, names)
    result = json.dumps(names["result"], default=str)
    assert _reply(book, "ComputationSummary", _task_prompt(step, program, result))["answer"]
    return [f"result.{name}={value}" for name, value in names["result"].items()]


def _task_prompt(step: SqlStep | ComputationStep, *more: str) -> str:
    return "\n\n".join([f"### Task\n{step.task}", "### More", *more])


def _planner_prompt(question: str) -> str:
    return f"### Question\n{question}\n\n### Instructions\nnone"


def _composer_prompt(question: Question, data: list[str]) -> str:
    """The relevant sections of the composer's prompt."""
    shown = "\n".join(["### Data of the results", *data])
    return f"{shown}\n\n{composer_section(question.question)}"


def _markdown(columns: tuple[str, ...], rows: list[Any]) -> list[str]:
    def line(cells: Any) -> str:
        return f"| {' | '.join(str(cell) for cell in cells)} |"

    return [line(columns), line(["---"] * len(columns)), *map(line, rows)]


def _reply(book: FixtureBook, schema: str | None, prompt: str) -> Any:
    found = book.find(schema=schema, model="scripted", prompt=prompt)
    assert found is not None, prompt
    return found.render(prompt)
