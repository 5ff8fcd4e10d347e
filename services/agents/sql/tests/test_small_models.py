"""What small models are asked: one thing at a time, and no review."""

from __future__ import annotations

from typing import Any

from bos_testkit.scripted_model.replies import fixture

from .conftest import FAILED, GOOD, MISSING_COLUMN, NEEDS_CLARIFICATION, SUCCEEDED, StartHouse

CLEAR = {"tables": ["orders", "customers"], "is_clear": True}
UNCLEAR = {
    "tables": ["exact"],
    "is_clear": False,
    "clarifying_questions": [{"question": "Which metric?", "options": ["orders.amount"]}],
    "assumptions": ["The metric is orders.amount."],
}


def replies(choice: dict[str, Any] = CLEAR, sql: str = GOOD["sql"], *more: Any) -> list[Any]:
    return [
        fixture("choice", [], schema="SchemaChoice", json=choice),
        fixture("query", [], schema="GeneratedSql", json={"sql": sql}),
        *more,
    ]


def schemas(house: Any) -> list[str]:
    return [request.schema for request in house.model.requests]


async def test_tables_and_query_are_two_calls_and_nothing_is_reviewed(start: StartHouse) -> None:
    house = await start(replies(), tier="small", review="always")

    done = await house.ask()

    assert done.result.status == SUCCEEDED
    assert schemas(house) == ["SchemaChoice", "GeneratedSql"]
    assert done.events("check_query")[0] == {
        "state": "skipped",
        "reason": "a small model reviews nothing",
    }


async def test_of_many_tables_the_chosen_ones_are_described_for_the_query(
    start: StartHouse,
) -> None:
    choice = {"tables": ["ORDERS", "nothing"], "is_clear": True}
    house = await start(
        replies(choice, "SELECT amount FROM orders"), tier="small", small_schema_tables=0
    )

    done = await house.ask()

    assert done.result.status == SUCCEEDED
    (choose,), (generate,) = house.prompts("SchemaChoice"), house.prompts("GeneratedSql")
    assert "\nexact\n" in choose
    assert "city text" in choose
    assert "city text" not in generate
    assert "amount numeric" in generate


async def test_an_unclear_task_is_judged_again_with_the_columns_in_sight(
    start: StartHouse,
) -> None:
    asked = [{"question": "Which column?", "options": ["exact.price", "exact.cost"]}]
    check = fixture(
        "check",
        ["price numeric"],
        schema="ClarityCheck",
        json={"is_clear": False, "clarifying_questions": asked, "assumptions": []},
    )
    house = await start(replies(UNCLEAR, GOOD["sql"], check), tier="small", small_schema_tables=0)

    done = await house.ask()

    assert done.result.status == NEEDS_CLARIFICATION
    (question,) = done.result.clarification.questions
    assert (question.question, list(question.options)) == ("Which column?", ["exact.price"])
    assert schemas(house) == ["SchemaChoice", "ClarityCheck"]
    assert house.queries() == 0


async def test_of_few_tables_the_first_questions_are_asked(start: StartHouse) -> None:
    house = await start(replies(UNCLEAR), tier="small")

    done = await house.ask()

    assert done.result.status == NEEDS_CLARIFICATION
    assert schemas(house) == ["SchemaChoice"]


async def test_after_five_turns_the_query_is_written_on_assumptions(start: StartHouse) -> None:
    house = await start(replies(UNCLEAR), tier="small")

    done = await house.ask(clarification_turn_count=5)

    assert done.result.status == SUCCEEDED
    assert done.result.answer.endswith("This assumes: The metric is orders.amount.")
    assert "- The metric is orders.amount." in house.prompts("GeneratedSql")[0]


async def test_an_unclear_task_without_a_question_is_answered_and_says_so(
    start: StartHouse,
) -> None:
    house = await start(replies({**CLEAR, "is_clear": False}), tier="small")

    done = await house.ask()

    assert done.result.status == SUCCEEDED
    assert list(done.result.assumptions) == ["the likeliest meaning of the question"]


async def test_a_failed_query_is_told_and_written_again(start: StartHouse) -> None:
    again = fixture(
        "again",
        ["The previous SQL query failed to execute."],
        schema="GeneratedSql",
        json={"sql": GOOD["sql"]},
    )
    house = await start(replies(CLEAR, MISSING_COLUMN["sql"], again), tier="small")
    house.model.knobs.prose_next(2, schema="ErrorTriage")

    done = await house.ask()

    assert done.result.status == SUCCEEDED
    assert len(house.prompts("GeneratedSql")) == 2


async def test_a_task_without_a_query_ends_the_step(start: StartHouse) -> None:
    house = await start(replies(CLEAR, ""), tier="small")

    done = await house.ask()

    assert done.result.status == FAILED
    assert done.result.error.type == "QueryError"
