from collections import Counter
from collections.abc import Iterator
from itertools import permutations

import pytest

from bos_demo.company import DEFAULT_TODAY, table_names
from bos_demo.dialects import DIALECTS, write_sql
from bos_demo.dialogues import load_approved
from bos_demo.questions import REFERENCE, Question, SqlStep, load_every_question
from bos_demo.uploads import sample_uploads
from bos_sqlguard.guard import Guard
from bos_sqlguard.policy import GuardPolicy

EVERY = load_every_question()
QUESTIONS = (*EVERY, *load_approved())
SQL_STEPS = [(q, s) for q in QUESTIONS for s in q.steps if isinstance(s, SqlStep)]
FILE_STEPS = [(q, s) for q, s in SQL_STEPS if s.file]


def _name(value: object) -> str:
    return value.id if isinstance(value, Question | SqlStep) else str(value)


def test_there_are_enough_questions_of_each_kind() -> None:
    kinds = Counter(question.kind for question in EVERY)
    least = Counter(sql=12, computation=4, chains=5, parallel=2, documents=17, apis=8, charts=6)
    least += Counter(reports=3, texts=4, mail=9, uploads=2, web=10)
    assert least <= kinds
    shapes = {question.agents for question in EVERY}
    assert {
        ("web",),
        ("web", "computation"),
        ("rag", "web"),
        ("rag", "web", "computation"),
    } <= shapes


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
        # Searches and files are asked for in the words of the question.
        for step in question.steps if question.kind not in ("web", "files") else ():
            assert not any(step.task.casefold() in q.question.casefold() for q in QUESTIONS)


@pytest.mark.requirement("T-04", "T-05")
def test_plans_and_queries_of_all_questions_are_valid() -> None:
    """References, the shape of each kind, and the guard on every variant of every query."""
    problems = {
        question.id: found
        for question in QUESTIONS
        if (found := [*_plan_problems(question), *_shape_problems(question), *_refusals(question)])
    }
    assert problems == {}


def _plan_problems(question: Question) -> Iterator[str]:
    before: set[str] = set()
    for step in question.steps:
        if not set(question.depends_on(step)) <= before:
            yield f"{step.id} depends on a later step"
        # Inputs of the others are marks, columns, languages, recipients and searches.
        if step.agent not in ("charts", "text", "mail", "files", "web"):
            for value in step.inputs.values():
                ends = (".chunks}", ".sources}") if question.kind == "web" else ".rows}"
                if not (REFERENCE.fullmatch(value) and value.endswith(ends)):
                    yield f"{step.id} has the input {value}"
        before.add(step.id)


def _shape_problems(question: Question) -> Iterator[str]:
    if question not in EVERY:
        return
    agents = question.agents
    joined = [step for step in question.steps if question.depends_on(step)]
    independent = len(question.steps) - len(joined)
    last_is_joined = bool(joined) and question.steps[-1] in joined
    valid = {
        "sql": agents == ("sql",),
        "uploads": agents == ("sql",),
        "computation": agents == ("computation",),
        "chains": agents == ("sql", "computation") and bool(joined),
        "parallel": independent >= 2,
        "documents": agents in (("rag",), ("rag", "sql")),
        "apis": agents[:1] == ("api_docs",),
        "charts": agents in (("sql", "charts"), ("sql", "computation", "charts"))
        and last_is_joined,
        "reports": agents == ("sql", "charts")
        and question.intent == "ANALYTICS_REPORT"
        and independent == len(joined) >= 3,
        "texts": agents[-1:] == ("text",) and last_is_joined,
        "mail": agents in (("mail",), ("sql", "mail")),
        "talk": agents == (),
        "web": "web" in agents,
        "files": "files" in agents,
    }[question.kind]
    if not valid:
        yield f"{agents}, {independent} independent steps, do not suit the kind {question.kind}"


def _refusals(question: Question) -> Iterator[str]:
    for step in question.steps:
        if isinstance(step, SqlStep) and not step.file:
            for dialect in DIALECTS:
                policy = GuardPolicy(dialect, frozenset(table_names()), default_schema="company")
                verdict = Guard(policy).check(step.query(dialect, DEFAULT_TODAY))
                if set(verdict.used_tables) != set(step.tables):
                    yield f"{step.id} in {dialect}: {verdict.user_message} {verdict.used_tables}"


@pytest.mark.parametrize(("question", "step"), FILE_STEPS, ids=_name)
def test_queries_of_uploaded_files_pass_the_guard(question: Question, step: SqlStep) -> None:
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
