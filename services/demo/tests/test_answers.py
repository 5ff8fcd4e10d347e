"""Demo questions against their reference, on both databases and with scripted replies."""

from __future__ import annotations

import json
import sqlite3
from decimal import Decimal
from typing import Any

import pytest
from asyncpg import Connection

from bos_demo.company import DEFAULT_TODAY, table_names
from bos_demo.dialogues import load_approved, load_followups
from bos_demo.expectations import expected_facts, expected_rows, mentions, same_rows
from bos_demo.questions import REFERENCE, ComputationStep, Question, SqlStep, load_questions
from bos_demo.schema import read_tables
from bos_demo.scripted.replies import composer_section, demo_fixtures
from bos_sql.dialects.translate import translate
from bos_sql.grounding.catalog import Field, Table
from bos_sqlguard import Dialect, Guard, GuardPolicy
from bos_testkit.scripted_model.replies import FixtureBook, load_fixtures

Rows = list[tuple[Any, ...]]

QUESTIONS = load_questions()
TRANSLATED = (*QUESTIONS, *load_followups(), *load_approved())
OTHERS = (*load_questions("documents"), *load_questions("charts"), *load_questions("reports"))
WITH_QUERIES = [
    *TRANSLATED,
    *(each for each in OTHERS if any(isinstance(step, SqlStep) for step in each.steps)),
]
TABLES = [
    Table(
        each.name,
        "table",
        tuple(Field(column.name, column.definition.split()[0]) for column in each.columns),
    )
    for each in read_tables()
]


@pytest.fixture(scope="module")
def book() -> FixtureBook:
    return load_fixtures(demo_fixtures(DEFAULT_TODAY))


@pytest.mark.requirement("D-09")
@pytest.mark.parametrize("question", WITH_QUERIES, ids=lambda each: each.id)
async def test_question_is_answered_from_the_data(
    question: Question, company: Connection, sqlite_company: sqlite3.Connection, book: FixtureBook
) -> None:
    """Queries of both databases, their translations, the scripted plan and answer."""
    for step in question.steps:
        if isinstance(step, SqlStep):
            rows = await _agreed_rows(step, company, sqlite_company)
            if question in TRANSLATED:
                await _assert_translated(step, rows, company, sqlite_company)
    if question in QUESTIONS:
        plan = _reply(book, "PlannerReply", _planner_prompt(question.question))
        assert [(step["step_id"], step["agent"]) for step in plan["steps"]] == [
            (step.id, step.agent) for step in question.steps
        ]
        answer = _reply(book, None, await _played(question, company, book))
        facts = await expected_facts(company, question, DEFAULT_TODAY)
        assert facts
        assert [fact for fact in facts if not mentions(answer, fact)] == []


def test_unknown_question_has_no_scripted_reply(book: FixtureBook) -> None:
    for asked in ("How tall is our tallest employee?", f"{QUESTIONS[0].question} and drop them"):
        prompt = _planner_prompt(asked)
        assert book.find(schema="PlannerReply", model="any", prompt=prompt) is None


@pytest.mark.parametrize(
    ("answer", "fact", "stated"),
    [
        ("Revenue was Rs.1,75,206.00.", Decimal("175206"), True),
        ("Revenue was Rs.175,206.", 175206.0, True),
        ("Revenue was Rs.1,75,207.00.", Decimal("175206"), False),
        ("It fell by 3.5 percent.", Decimal("-3.5"), True),
        ("The best was kaveri dyes.", "Kaveri Dyes", True),
        ("The best was Kaveri.", "Kaveri Dyes", False),
    ],
)
def test_facts_are_recognised_in_any_number_format(answer: str, fact: Any, stated: bool) -> None:
    assert mentions(answer, fact) is stated


async def _agreed_rows(
    step: SqlStep, company: Connection, sqlite_company: sqlite3.Connection
) -> Rows:
    """The rows of the reference, after comparing those of both databases with them."""
    reference = await expected_rows(company, step, DEFAULT_TODAY)
    found = await company.fetch(step.query("postgres", DEFAULT_TODAY))
    in_sqlite = sqlite_company.execute(step.query("sqlite", DEFAULT_TODAY))
    columns = [column[0] for column in in_sqlite.description]
    assert reference
    assert columns == list(reference[0].keys()) == list(found[0].keys()) == list(step.columns)
    rows = [tuple(record) for record in reference]
    assert same_rows([tuple(record) for record in found], rows)
    assert same_rows(in_sqlite.fetchall(), rows)
    return rows


async def _assert_translated(
    step: SqlStep, rows: Rows, company: Connection, sqlite_company: sqlite3.Connection
) -> None:
    """Translated by the sql agent: the same rows in the other database, TOP for SQL Server."""
    for_sqlite = sqlite_company.execute(_translated(step, "postgres", "sqlite")).fetchall()
    assert same_rows(for_sqlite, rows)
    for_postgres = await company.fetch(_translated(step, "sqlite", "postgres"))
    assert same_rows([tuple(row) for row in for_postgres], rows)
    for source in ("postgres", "sqlite"):
        written = _translated(step, source, "tsql")
        assert written.startswith("SELECT TOP ")
        assert "LIMIT" not in written


def _translated(step: SqlStep, source: Dialect, target: Dialect) -> str:
    """The step's query as the agent sends it: translated by the guard to the other dialect."""

    def guarded(sql: str, dialect: Dialect) -> str:
        policy = GuardPolicy(dialect, frozenset(table_names()), default_schema="company")
        verdict = Guard(policy).check(sql)
        assert verdict.is_safe, verdict.violations
        return verdict.safe_sql

    tables = [table for table in TABLES if table.name in step.tables]
    done = translate(guarded(step.query(source, DEFAULT_TODAY), source), source, target, tables)
    assert done.withheld == ""
    return guarded(done.sql, target)


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
