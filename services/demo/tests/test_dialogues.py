"""Follow-ups and ambiguous questions, against the company's rows."""

from __future__ import annotations

import ast
import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from asyncpg import Connection

from bos_demo.company import DEFAULT_TODAY, table_names
from bos_demo.dialects import DIALECTS
from bos_demo.dialogues import Choice, load_approved, load_clarified, load_followups
from bos_demo.expectations import expected_facts, same_rows
from bos_demo.periods import named_periods
from bos_demo.questions import REFERENCE, SqlStep, load_questions
from bos_demo.rows import CompanyRows
from bos_demo.scripted.dialogue import dialogue_fixtures
from bos_demo.scripted.replies import demo_fixtures
from bos_sqlguard.guard import Guard
from bos_sqlguard.policy import GuardPolicy
from bos_testkit.scripted_model.replies import FixtureBook, load_fixtures

FOLLOWUPS = load_followups()
(SHIFT,) = load_clarified()
# Every two choices of different questions together; all three would be twice as many.
SETTLED = [
    (chosen, step)
    for chosen, step in SHIFT.steps()
    if sum(ask.choices.index(chosen[ask.slot]) for ask in SHIFT.asks) % 2 == 0
]


def _name(value: Any) -> str:
    return value.task if isinstance(value, SqlStep) else ""


@pytest.fixture(scope="module")
def book() -> FixtureBook:
    return load_fixtures([*demo_fixtures(DEFAULT_TODAY), *dialogue_fixtures(DEFAULT_TODAY)])


def test_every_follow_up_follows_a_demo_question() -> None:
    asked = {question.question for question in load_questions()}
    assert FOLLOWUPS
    assert {each.after for each in FOLLOWUPS} <= asked


@pytest.mark.parametrize(("chosen", "step"), SETTLED, ids=lambda each: _name(each))
async def test_reply_leads_to_the_right_amounts(
    chosen: Mapping[str, Choice],
    step: SqlStep,
    company: Connection,
    sqlite_company: sqlite3.Connection,
    rows: CompanyRows,
    book: FixtureBook,
) -> None:
    """The sums are computed row by row, without a query."""
    reply = ", ".join(each.offered for each in chosen.values())
    assert _planned(book, reply).casefold() == step.task.casefold()
    _assert_guard_passes(step)
    before, today = _amounts(rows, {slot: each.words for slot, each in chosen.items()})
    found = await company.fetchrow(step.query("postgres", DEFAULT_TODAY))
    assert (found["value_before"], found["value_today"]) == (before, today)
    assert today > 0
    # The day before today was a Sunday.
    assert (before > 0) is (chosen["days"].words == "working days")
    in_sqlite = sqlite_company.execute(step.query("sqlite", DEFAULT_TODAY)).fetchall()
    assert same_rows(in_sqlite, [(before, today)])


@pytest.mark.requirement("D-05")
def test_offered_choices_are_in_the_schema(rows: CompanyRows) -> None:
    groups = {c.category_name for c in rows.product_categories if c.parent_category_id is None}
    (group,) = (ask for ask in SHIFT.asks if ask.slot == "group")
    assert {choice.offered for choice in group.choices[1:]} == groups


def test_choices_missing_in_a_reply_take_the_stated_default(book: FixtureBook) -> None:
    assumed = SETTLED[0][1].task
    assert _planned(book, "as you think best").casefold() == assumed.casefold()
    assert "of Pumps " in _planned(book, "the pumps please").replace("pumps", "Pumps")


def _assert_guard_passes(step: SqlStep) -> None:
    for dialect in DIALECTS:
        policy = GuardPolicy(dialect, frozenset(table_names()), default_schema="company")
        verdict = Guard(policy).check(step.query(dialect, DEFAULT_TODAY))
        assert verdict.is_safe, (dialect, verdict.violations)
        assert set(verdict.used_tables) == set(step.tables)


def _planned(book: FixtureBook, reply: str) -> str:
    asked = "\n".join(
        f"Asked: {ask.question} (offered: {'; '.join(each.offered for each in ask.choices)})"
        for ask in SHIFT.asks
    )
    prompt = (
        f"### Question\n{SHIFT.question}\n\n### Settled with the user\n<untrusted>\n{asked}\n"
        f"</untrusted>\nThe user replied: {reply}\n\n### Instructions\nnone"
    )
    return str(_plan(book, prompt)[0]["task"])


def _plan(book: FixtureBook, prompt: str) -> list[dict[str, Any]]:
    found = book.find(schema="PlannerReply", model="scripted", prompt=prompt)
    plan: Any = found.render(prompt)
    return list(plan["steps"])


def _amounts(rows: CompanyRows, words: Mapping[str, str]) -> tuple[Decimal, Decimal]:
    days = {invoice.invoice_id: invoice.invoice_date for invoice in rows.invoices}
    products = {product.product_id: product for product in rows.products}
    parents = {each.category_id: each.parent_category_id for each in rows.product_categories}
    names = {each.category_id: each.category_name for each in rows.product_categories}
    (today, _) = named_periods(DEFAULT_TODAY)["today"]
    before = max(day for day in days.values() if day < today)
    if words["days"] == "calendar days":
        before = named_periods(DEFAULT_TODAY)["yesterday"].start
    totals = dict.fromkeys((before, today), Decimal(0))
    for line in rows.invoice_lines:
        product, day = products[line.product_id], days[line.invoice_id]
        group = names[parents[product.category_id] or 0]
        if day not in totals or words["group"] not in ("all product groups", group):
            continue
        cost = line.quantity * product.unit_cost if words["measure"] == "gross margin" else 0
        totals[day] += line.line_amount - cost
    return totals[before], totals[today]


(CHART,) = load_approved()
MONTHLY, DRAWING = CHART.steps


async def test_facts_are_sums(company: Connection, rows: CompanyRows, book: FixtureBook) -> None:
    start, end = named_periods(DEFAULT_TODAY)["last_year"]
    days = {invoice.invoice_id: invoice.invoice_date for invoice in rows.invoices}
    months: dict[int, Decimal] = defaultdict(Decimal)
    for line in rows.invoice_lines:
        day = days[line.invoice_id]
        if start <= day < end:
            months[day.month] += line.line_amount
    facts = await expected_facts(company, CHART, DEFAULT_TODAY)
    assert facts == [sum(months.values()), max(months.values())]
    first, second = _plan(book, f"### Question\n{CHART.question}\n\n### Instructions\nnone")
    assert (first["tool_name"], second["tool_name"]) == (None, "execute_code")
    assert second["depends_on"] == ["monthly"]
    assert second["sub_task_input"] == [{"name": "months", "value": "@{outputs.monthly.rows}"}]


async def test_the_program_computes_the_facts(company: Connection) -> None:
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
