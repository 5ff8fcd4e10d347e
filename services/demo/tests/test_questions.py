from __future__ import annotations

from collections import Counter
from graphlib import TopologicalSorter
from itertools import permutations

import pytest

from bos_demo.company import DEFAULT_TODAY, table_names
from bos_demo.dialects import DIALECTS, write_sql
from bos_demo.questions import (
    REFERENCE,
    Question,
    SqlStep,
    load_api_questions,
    load_chart_questions,
    load_document_questions,
    load_mail_questions,
    load_questions,
    load_report_questions,
    load_text_questions,
    load_upload_questions,
)
from bos_demo.uploads import sample_uploads
from bos_sqlguard.guard import Guard
from bos_sqlguard.policy import GuardPolicy

QUESTIONS = (
    *load_questions(),
    *load_document_questions(),
    *load_api_questions(),
    *load_chart_questions(),
    *load_report_questions(),
    *load_text_questions(),
    *load_mail_questions(),
    *load_upload_questions(),
)
EVERY_SQL_STEP = [(q, s) for q in QUESTIONS for s in q.steps if isinstance(s, SqlStep)]
SQL_STEPS = [(q, s) for q, s in EVERY_SQL_STEP if not s.file]
FILE_STEPS = [(q, s) for q, s in EVERY_SQL_STEP if s.file]


def _name(value: object) -> str:
    return value.id if isinstance(value, Question | SqlStep) else str(value)


def test_there_are_enough_questions_of_each_kind() -> None:
    kinds = Counter(question.kind for question in QUESTIONS)
    assert kinds["sql"] >= 12
    assert kinds["computation"] >= 4
    assert kinds["chains"] >= 5
    assert kinds["parallel"] >= 2
    assert kinds["apis"] >= 8
    assert kinds["charts"] >= 6
    assert kinds["reports"] >= 3
    assert kinds["texts"] >= 4
    assert kinds["mail"] >= 9
    assert kinds["uploads"] >= 2
    assert kinds.total() >= 24


def test_questions_named_by_the_specification_exist() -> None:
    """The list of tables, and the acceptance question of `make demo`."""
    asked = {question.question: question for question in QUESTIONS}
    assert asked["List all tables in the database"].agents == ("sql",)
    top = asked[
        "Which five customers brought the most revenue last quarter, "
        "and what share of the total is that?"
    ]
    assert top.agents == ("sql", "computation")


def test_ids_are_unique() -> None:
    assert len({question.id for question in QUESTIONS}) == len(QUESTIONS)
    for question in QUESTIONS:
        assert len({step.id for step in question.steps}) == len(question.steps)


def test_no_question_or_task_occurs_in_another() -> None:
    """The scripted model distinguishes prompts by these texts."""
    for texts in ([q.question for q in QUESTIONS], [s.task for q in QUESTIONS for s in q.steps]):
        for one, other in permutations(texts, 2):
            assert one.casefold() not in other.casefold(), (one, other)
    for question in QUESTIONS:
        for step in question.steps:
            assert not any(step.task.casefold() in q.question.casefold() for q in QUESTIONS)


@pytest.mark.parametrize("question", QUESTIONS, ids=_name)
def test_references_lead_to_earlier_steps_and_plans_have_no_cycle(question: Question) -> None:
    before: set[str] = set()
    for step in question.steps:
        assert set(question.depends_on(step)) <= before
        for value in step.inputs.values():
            # Marks, columns, languages, recipients and searches the plan may name.
            if step.agent not in ("charts", "text", "mail"):
                assert REFERENCE.fullmatch(value)
                assert value.endswith(".rows}")
        before.add(step.id)
    graph = {step.id: question.depends_on(step) for step in question.steps}
    assert set(TopologicalSorter(graph).static_order()) == before


@pytest.mark.parametrize("question", QUESTIONS, ids=_name)
def test_plans_of_a_kind_have_its_shape(question: Question) -> None:
    joined = [step for step in question.steps if question.depends_on(step)]
    independent = len(question.steps) - len(joined)
    match question.kind:
        case "sql" | "uploads":
            assert question.agents == ("sql",)
        case "computation":
            assert question.agents == ("computation",)
        case "chains":
            assert question.agents == ("sql", "computation")
            assert joined
        case "parallel":
            assert independent >= 2
        case "documents":
            assert question.agents in (("rag",), ("rag", "sql"))
        case "apis":
            assert question.agents[0] == "api_docs"
        case "charts":
            assert question.agents in (("sql", "charts"), ("sql", "computation", "charts"))
            assert question.depends_on(question.steps[-1])
        case "reports":
            assert question.agents == ("sql", "charts")
            assert question.intent == "ANALYTICS_REPORT"
            assert independent == len(joined) >= 3
        case "texts":
            assert question.agents[-1] == "text"
            assert question.depends_on(question.steps[-1])
        case "mail":
            assert question.agents in (("mail",), ("sql", "mail"))
        case "talk":
            assert question.agents == ()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("question", "step"), SQL_STEPS, ids=_name)
@pytest.mark.requirement("T-04", "T-05")
def test_the_guard_passes_every_query_in_every_dialect(
    question: Question, step: SqlStep, dialect: str
) -> None:
    """All variants are single SELECTs on the tables they name."""
    policy = GuardPolicy(
        dialect=dialect,  # type: ignore[arg-type]
        allowed_tables=frozenset(table_names()),
        default_schema="company",
    )
    verdict = Guard(policy).check(step.query(dialect, DEFAULT_TODAY))  # type: ignore[arg-type]
    assert verdict.is_safe, verdict.violations
    assert set(verdict.used_tables) == set(step.tables)


@pytest.mark.parametrize(("question", "step"), FILE_STEPS, ids=_name)
def test_the_guard_passes_queries_of_uploaded_files_and_the_files_are_there(
    question: Question, step: SqlStep
) -> None:
    policy = GuardPolicy(
        dialect="duckdb", allowed_tables=frozenset(step.tables), default_schema="main"
    )
    verdict = Guard(policy).check(step.sql)
    assert verdict.is_safe, verdict.violations
    assert step.file in sample_uploads()
    # What is not named is not asked: the task goes to the agent without the question.
    assert step.file in question.question
    assert step.file in step.task


def test_marks_are_translated_per_dialect() -> None:
    query = "SELECT {top 3}{month d} FROM t WHERE d < '{last_quarter.end}' {limit 3}"
    assert write_sql(query, "postgres", DEFAULT_TODAY) == (
        "SELECT to_char(d, 'YYYY-MM') FROM t WHERE d < '2026-04-01' LIMIT 3"
    )
    assert write_sql(query, "sqlite", DEFAULT_TODAY) == (
        "SELECT strftime('%Y-%m', d) FROM t WHERE d < '2026-04-01' LIMIT 3"
    )
    assert write_sql(query, "tsql", DEFAULT_TODAY) == (
        "SELECT TOP (3) FORMAT(d, 'yyyy-MM') FROM t WHERE d < '2026-04-01'"
    )


def test_followups_of_a_query_are_demo_questions() -> None:
    asked = {question.question for question in QUESTIONS}
    suggested = [each for _, step in SQL_STEPS for each in step.followups]
    assert len(suggested) >= 3
    assert set(suggested) <= asked
