"""Clarify first, end to end: questions before any query, and a reply that runs one.

The sample company's schema is real, and so is every query; the model is scripted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any, TypeAlias

import asyncpg
import pytest
import pytest_asyncio

from bos.gateway.v1 import RunStatus
from bos_demo.company import table_names
from bos_demo.dialogues import load_clarified
from bos_demo.expectations import mentions, same_rows
from bos_mcp_db.settings import DatabaseSettings
from bos_postgres import connect
from bos_standalone.stores import COMPANY_DATABASE
from bos_testkit.postgres import PostgresServer
from bos_testkit.scripted_model.replies import fixture

from .conftest import StartHarness
from .harness import Harness, plan_reply, planned, rows

Company: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.requirement("D-05"),
]

(SHIFT,) = load_clarified()
CLARIFICATION_NEEDED = RunStatus.RUN_STATUS_CLARIFICATION_NEEDED
SUCCEEDED = RunStatus.RUN_STATUS_SUCCEEDED
REPLY = "Revenue, Pumps, and working days please"
# Written apart from the demo's own query.
EXPECTED = """
SELECT (SELECT sum(line_amount) FROM sold WHERE invoice_date = days.before),
       (SELECT sum(line_amount) FROM sold WHERE invoice_date = '2026-06-15')
FROM (SELECT max(invoice_date) AS before FROM invoices WHERE invoice_date < '2026-06-15') AS days
"""
SOLD = """
CREATE TEMPORARY VIEW sold AS
SELECT invoice_date, line_amount FROM invoice_lines JOIN invoices USING (invoice_id)
WHERE product_id IN (
    SELECT product_id FROM products JOIN product_categories USING (category_id)
    WHERE parent_category_id =
        (SELECT category_id FROM product_categories WHERE category_name = 'Pumps'))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def company_rows(
    postgres_server: PostgresServer, company: DatabaseSettings
) -> AsyncIterator[Company]:
    """The administrator's connection to the company, for the reference queries."""
    async with connect(postgres_server.dsn(COMPANY_DATABASE), schema="company") as connection:
        await connection.execute(SOLD)
        yield connection


async def schema_of(company: Company) -> set[str]:
    found = await company.fetch(
        "SELECT table_name || '.' || column_name AS name FROM information_schema.columns "
        "WHERE table_schema = 'company' AND table_name = ANY($1)",
        list(table_names()),
    )
    return {str(row["name"]) for row in found}


@pytest.mark.requirement("D-05")
async def test_asks_for_measure_group_and_boundary_before_running(
    start_harness: StartHarness, company_rows: Company
) -> None:
    harness = await start_harness()

    asked = await harness.ask(SHIFT.question)

    response = asked.response
    assert response.status == CLARIFICATION_NEEDED
    measure, group, boundary = response.clarification.questions
    assert "measure" in measure.question
    assert "product group" in group.question
    assert "day" in boundary.question
    assert any("UTC" in option for option in boundary.options)
    groups = await company_rows.fetch(
        "SELECT category_name FROM product_categories WHERE parent_category_id IS NULL"
    )
    assert set(group.options) == {"All product groups", *(row["category_name"] for row in groups)}
    named = {option.partition("(")[2].rstrip(")") for option in measure.options}
    assert len(named) == 2
    assert named <= await schema_of(company_rows)
    assert "Today is 2026-06-15 (UTC)." in response.clarification.assumptions
    _nothing_was_queried(harness, asked.response.trace)

    answered = await harness.ask(REPLY, continues_run_id=response.run_id)

    assert answered.response.status == SUCCEEDED
    expected = [tuple(await company_rows.fetchrow(EXPECTED) or ())]
    assert same_rows(rows(answered.response.data), expected)
    assert all(amount > Decimal(0) for amount in expected[0])
    for amount in expected[0]:
        assert mentions(answered.response.answer, amount)
    assert harness.queries() == 1
    _nothing_is_asked_twice(harness)


def _nothing_was_queried(harness: Harness, trace: Any) -> None:
    assert harness.queries() == 0
    assert harness.calls("QueryReview") == 0
    messages = {event.message for event in trace}
    assert "The task is unclear" in messages
    assert messages.isdisjoint({"generate_query", "execute_query", "mcp_db_query"})


def _nothing_is_asked_twice(harness: Harness) -> None:
    """The clarity prompt of the reply's run shows the reply."""
    prompts = [each.prompt for each in harness.model.requests if each.schema == "QueryDraft"]
    assert len(prompts) == 2
    assert REPLY not in prompts[0]
    assert f"The user replied: {REPLY}" in prompts[1]


UNCLEAR = "How are things moving?"
ASSUMED = "Only customers with the status active are meant"


def _never_clear(assumptions: list[str]) -> list[Any]:
    task = "Count how things move"
    judgement = {
        "is_clear": False,
        "clarifying_questions": [{"question": "Which things?", "options": ["customers.status"]}],
        "assumptions": assumptions,
    }
    sql = "SELECT COUNT(*) AS customers FROM customers WHERE status = 'active'"

    def reply(schema: str, **json: Any) -> Any:
        return fixture(f"{schema} unclear", [f"### Task\n{task}\n"], schema=schema, json=json)

    steps = [planned("count", "sql", task)]
    again = plan_reply(UNCLEAR, *steps).model_dump(by_alias=True)
    again["name"] = "plan of a reply"
    again["when"]["contains"] = [f"### Question\n{UNCLEAR}\n\n### Settled with the user"]
    return [
        plan_reply(UNCLEAR, *steps),
        type(plan_reply(UNCLEAR, *steps)).model_validate(again),
        # The query is there already; it must not run as long as the user can be asked.
        reply("QueryDraft", **judgement, sql=sql, used_tables=["customers"]),
        reply("QueryReview", checks="Fine.", is_correct=True, corrected_sql=None),
        reply("ResultInterpretation", answer="Things were counted.", highlights=[], followups=[]),
        # The composer's model forgets to say what was assumed.
        fixture("answer", [f"### Question\n{UNCLEAR}\n"], text="They move."),
    ]


async def _five_replies(harness: Harness) -> Any:
    outcome = await harness.ask(UNCLEAR)
    for turn in range(5):
        assert outcome.response.status == CLARIFICATION_NEEDED, turn
        assert harness.queries() == 0
        outcome = await harness.ask(f"no idea {turn}", continues_run_id=outcome.response.run_id)
    return outcome


async def test_assumptions_are_used_and_stated_after_five_replies(
    start_harness: StartHarness,
) -> None:
    harness = await start_harness(replies=_never_clear([ASSUMED]))

    outcome = await _five_replies(harness)

    assert outcome.response.status == SUCCEEDED
    assert outcome.response.answer.count(ASSUMED) == 1
    assert "They move." in outcome.response.answer
    assert ASSUMED in "".join(event.answer_delta.text for event in outcome.events)
    assert harness.queries() == 1


async def test_run_ends_with_an_explanation_after_five_replies(
    start_harness: StartHarness,
) -> None:
    harness = await start_harness(replies=_never_clear([])[:-1])

    outcome = await _five_replies(harness)

    assert outcome.response.status == RunStatus.RUN_STATUS_FAILED
    assert "still unclear after 5 rounds of questions" in outcome.response.answer
    assert harness.queries() == 0
