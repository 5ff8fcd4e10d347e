"""Clarification: questions to the user and assumptions."""

from typing import Any

import pytest

from bos.common.v1 import ClarificationTurn
from bos_testkit.scripted_model.replies import Fixture, fixture

from .conftest import (
    FAILED,
    GOOD,
    MISSING_COLUMN,
    NEEDS_CLARIFICATION,
    SUCCEEDED,
    StartHarness,
    fixtures,
)

pytestmark = pytest.mark.requirement("D-03", "D-04", "D-05", "T-02")

SHIFT = "How is my dollar value shifting from yesterday to today?"
UNCLEAR = {
    "is_clear": False,
    "clarifying_questions": [
        {"question": "Which metric is meant?", "options": ["orders.amount", "number of orders"]},
        {"question": "Which cities?", "options": ["Pune", "Delhi"]},
        {"question": "In which time zone does a day begin?", "options": ["UTC"]},
    ],
    "assumptions": ["The metric is orders.amount."],
    # A query that must not run while questions to the user are allowed.
    "sql": GOOD["sql"],
}


def on_assumptions(*asked: str) -> Fixture:
    """The query, written once the assumptions are given."""
    given = [*asked, "### Assumptions - The metric is orders.amount."]
    return fixture("on assumptions", given, schema="QueryDraft", json=GOOD)


async def test_an_unclear_task_leads_to_questions_before_any_query(start: StartHarness) -> None:
    harness = await start(fixtures(drafted=UNCLEAR))

    # The fifth turn is the last one.
    day = {"current_date": "2026-06-15"}
    done = await harness.ask(SHIFT, context=day, clarification_turn_count=4)

    assert done.result.status == NEEDS_CLARIFICATION
    asked = done.result.clarification
    assert len(asked.questions) == 3
    assert asked.questions[0].question == "Which metric is meant?"
    assert list(asked.questions[0].options) == ["orders.amount", "number of orders"]
    assert list(asked.assumptions)[1:] == ["Today is 2026-06-15 (UTC)."]
    assert harness.model.calls == 1
    assert done.events("generate_query") == []
    assert harness.queries() == 0


@pytest.mark.parametrize("sql", [GOOD["sql"], None], ids=["at once", "on request"])
async def test_after_five_turns_assumptions_are_used(start: StartHarness, sql: str | None) -> None:
    harness = await start(fixtures(on_assumptions(), drafted={**UNCLEAR, "sql": sql}))

    done = await harness.ask(SHIFT, clarification_turn_count=5, is_final_answer=True)

    assert done.result.status == SUCCEEDED
    assert done.result.answer == "Agra leads. Assumed: The metric is orders.amount."
    assert list(done.result.assumptions) == ["The metric is orders.amount."]
    assert done.data["assumptions"] == ["The metric is orders.amount."]
    assert len(harness.prompts("QueryDraft")) == (1 if sql else 2)
    assert "Nothing can be asked any more" in harness.prompts("QueryDraft")[0]
    assert done.events("Proceeding on assumptions")
    # A query that rests on assumptions is reviewed, and the review sees them.
    assert "- The metric is orders.amount." in harness.prompts("QueryReview")[0]


async def test_after_five_turns_without_assumptions_the_step_fails(start: StartHarness) -> None:
    harness = await start(fixtures(drafted={**UNCLEAR, "assumptions": []}))

    done = await harness.ask(SHIFT, clarification_turn_count=5)

    assert done.result.status == FAILED
    assert done.result.error.type == "ClarificationLimit"
    assert "still unclear after 5 rounds" in done.result.error.message
    assert "Which metric is meant?" in done.result.error.message
    assert harness.queries() == 0


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ({"assumptions": ["All years count."]}, "All years count."),
        ({"reasoning": "amounts of all\nyears"}, "amounts of all years"),
        ({"clarifying_questions": [{"question": " "}]}, "the likeliest meaning of the question"),
    ],
)
async def test_without_a_question_the_answer_states_its_assumption(
    start: StartHarness, reply: dict[str, Any], expected: str
) -> None:
    harness = await start(fixtures(drafted={"is_clear": False, "sql": GOOD["sql"], **reply}))

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert list(done.result.assumptions) == [expected]
    assert done.result.answer.endswith(f"Assumed: {expected.rstrip('.')}.")
    assert len(harness.prompts("QueryDraft")) == 1


WHICH_YEAR = [{"question": "Which year?", "options": []}]


async def test_a_clear_task_asks_nothing_and_states_its_assumptions(start: StartHarness) -> None:
    more = {"assumptions": ["Amounts are in rupees"], "clarifying_questions": WHICH_YEAR}
    harness = await start(fixtures(drafted={**GOOD, **more}))

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert list(done.result.assumptions) == ["Amounts are in rupees"]
    assert done.result.answer.endswith(" Assumed: Amounts are in rupees.")
    assert done.data["assumptions"] == ["Amounts are in rupees"]


async def test_a_question_instead_of_a_query_is_asked(start: StartHarness) -> None:
    asking = {"is_clear": True, "sql": " ", "clarifying_questions": WHICH_YEAR}
    harness = await start(fixtures(drafted=asking))

    done = await harness.ask()
    limit = await harness.ask(clarification_turn_count=5)

    assert done.result.status == NEEDS_CLARIFICATION
    assert [each.question for each in done.result.clarification.questions] == ["Which year?"]
    assert limit.result.error.type == "ClarificationLimit"
    assert harness.queries() == 0


@pytest.mark.requirement("C-36")
async def test_after_a_failed_query_questions_or_assumptions_follow(start: StartHarness) -> None:
    failed = "failed to execute"
    unclear = fixture("unclear", [failed], schema="QueryDraft", json={**UNCLEAR, "sql": ""})
    harness = await start(fixtures(unclear, on_assumptions(failed), drafted=MISSING_COLUMN))

    done = await harness.ask(clarification_turn_count=5)
    assert len(harness.prompts("QueryDraft")) == 3
    asked = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert list(done.result.assumptions) == ["The metric is orders.amount."]
    assert asked.result.status == NEEDS_CLARIFICATION


def needing(table: str, **reply: Any) -> dict[str, Any]:
    """``QueryDraft`` that needs a table described first."""
    return {**UNCLEAR, "sql": None, "needs_tables": [table], **reply}


async def test_questions_about_many_tables_name_their_columns(start: StartHarness) -> None:
    asked = [{"question": "Which column?", "options": ["exact.price"]}]
    reply = {"is_clear": False, "clarifying_questions": asked}
    seen = fixture("seen", ["price numeric"], schema="QueryDraft", json=reply)
    harness = await start(fixtures(seen, drafted=needing("EXACT")), small_schema_tables=0)

    done = await harness.ask(SHIFT)

    assert [q.question for q in done.result.clarification.questions] == ["Which column?"]
    assert list(done.result.clarification.questions[0].options) == ["exact.price"]
    assert len(harness.prompts("QueryDraft")) == 2


async def test_a_table_that_is_described_already_causes_no_second_call(start: StartHarness) -> None:
    harness = await start(fixtures(drafted=needing("orders", **GOOD)))

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert len(harness.prompts("QueryDraft")) == 1


async def test_first_questions_are_asked_if_the_second_call_fails(start: StartHarness) -> None:
    first = fixture(
        "first", [], excludes=["price numeric"], schema="QueryDraft", json=needing("exact")
    )
    harness = await start([*fixtures()[1:], first], small_schema_tables=0)

    done = await harness.ask(SHIFT)

    assert done.result.clarification.questions[0].question == "Which metric is meant?"


async def test_options_that_name_unknown_tables_or_fields_are_dropped(start: StartHarness) -> None:
    options = [
        "Amount (orders.amount)",
        "Balance (accounts.balance)",
        "[orders.total]",
        "customers.city",
        "order_value",
        "Amount (in rupees, net)",
        "Pune",
    ]
    question = {"question": "Which metric is meant?", "options": options}
    harness = await start(fixtures(drafted={**UNCLEAR, "clarifying_questions": [question]}))

    done = await harness.ask(SHIFT)

    assert list(done.result.clarification.questions[0].options) == [
        "Amount (orders.amount)",
        "customers.city",
        "Amount (in rupees, net)",
        "Pune",
    ]
    (dropped,) = done.events("Options that name nothing here were dropped")
    assert dropped["options"] == ["Balance (accounts.balance)", "[orders.total]", "order_value"]


async def test_clarifications_are_in_all_prompts_that_judge_the_task(start: StartHarness) -> None:
    turn = ClarificationTurn(reply="the amount of orders")
    turn.asked.questions.add(question="Which metric is meant?", options=["orders.amount"])
    harness = await start(fixtures(), review="always")

    done = await harness.ask(
        SHIFT, clarifications=[turn], clarification_turn_count=1, is_final_answer=True
    )
    await harness.ask(SHIFT, is_final_answer=True)

    assert done.result.status == SUCCEEDED
    assert list(done.result.assumptions) == []
    settled = "Settled with the user"
    for schema in ("QueryDraft", "QueryReview", "ResultInterpretation"):
        replied, plain = harness.prompts(schema)
        assert "Asked: Which metric is meant? (offered: orders.amount)" in replied
        assert "The user replied: the amount of orders" in replied
        assert settled in replied
        assert settled not in plain.replace(f'"{settled}"', "")
