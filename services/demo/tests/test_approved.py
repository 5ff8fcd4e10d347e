"""Questions with a program to approve, against the company's rows."""

from __future__ import annotations

import ast
from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bos_demo.company import DEFAULT_TODAY, table_names
from bos_demo.dialects import DIALECTS
from bos_demo.dialogues import load_approved
from bos_demo.expectations import expected_facts
from bos_demo.periods import named_periods
from bos_demo.questions import REFERENCE, CodeStep, SqlStep, load_questions
from bos_demo.scripted.dialogue import dialogue_fixtures
from bos_demo.scripted.replies import demo_fixtures
from bos_sqlguard.guard import Guard
from bos_sqlguard.policy import GuardPolicy
from bos_testkit.scripted_model.replies import load_fixtures

if TYPE_CHECKING:
    import asyncpg

    from bos_demo.rows import CompanyRows

    Connection = asyncpg.Connection[asyncpg.Record]

(CHART,) = load_approved()
MONTHLY, DRAWING = CHART.steps
assert isinstance(MONTHLY, SqlStep)
assert isinstance(DRAWING, CodeStep)


async def test_facts_are_sums_of_the_rows(company: Connection, rows: CompanyRows) -> None:
    """The sums are computed row by row, without a query."""
    start, end = named_periods(DEFAULT_TODAY)["last_year"]
    days = {invoice.invoice_id: invoice.invoice_date for invoice in rows.invoices}
    months: dict[int, Decimal] = defaultdict(Decimal)
    for line in rows.invoice_lines:
        day = days[line.invoice_id]
        if start <= day < end:
            months[day.month] += line.line_amount
    facts = await expected_facts(company, CHART, DEFAULT_TODAY)
    assert facts == [sum(months.values()), max(months.values())]


async def test_the_program_computes_the_facts(company: Connection) -> None:
    """The program runs over the real rows, without the drawing."""
    names: dict[str, Any] = {}
    records = await company.fetch(MONTHLY.query("postgres", DEFAULT_TODAY))
    for name, value in DRAWING.inputs.items():
        reference = REFERENCE.fullmatch(value)
        assert reference
        assert reference[1] == MONTHLY.id
        names[name] = [dict(record) for record in records]
    tree = ast.parse(DRAWING.program)
    (last,) = [node for node in tree.body if "result" in ast.unparse(node).partition(" ")[0]]
    exec(compile(ast.Module([last], []), "program", "exec"), names)
    facts = await expected_facts(company, CHART, DEFAULT_TODAY)
    assert list(names["result"].values()) == facts


def test_the_guard_passes_the_query_in_every_dialect() -> None:
    for dialect in DIALECTS:
        policy = GuardPolicy(dialect, frozenset(table_names()), default_schema="company")
        verdict = Guard(policy).check(MONTHLY.query(dialect, DEFAULT_TODAY))
        assert verdict.is_safe, (dialect, verdict.violations)
        assert set(verdict.used_tables) == set(MONTHLY.tables)


def test_texts_occur_in_no_other_question_or_task() -> None:
    others = load_questions()
    taken = [q.question for q in others] + [s.task for q in others for s in q.steps]
    for text in (CHART.question, MONTHLY.task, DRAWING.task):
        for other in taken:
            assert text.casefold() not in other.casefold()
            assert other.casefold() not in text.casefold()


def test_plan_names_the_tool_and_passes_the_rows() -> None:
    book = load_fixtures([*demo_fixtures(DEFAULT_TODAY), *dialogue_fixtures(DEFAULT_TODAY)])
    prompt = f"### Question\n{CHART.question}\n\n### Instructions\nnone"
    found = book.find(schema="PlannerReply", model="scripted", prompt=prompt)
    assert found is not None
    plan: Any = found.render(prompt)
    first, second = plan["steps"]
    assert (first["tool_name"], second["tool_name"]) == (None, "execute_code")
    assert second["depends_on"] == ["monthly"]
    assert second["sub_task_input"] == [{"name": "months", "value": "@{outputs.monthly.rows}"}]
