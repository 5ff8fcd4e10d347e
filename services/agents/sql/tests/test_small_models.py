"""Small models: one decision per call, and no review."""

from typing import Any

from bos_testkit.scripted_model.replies import fixture

from .conftest import GOOD, MISSING_COLUMN, NEEDS_CLARIFICATION, SUCCEEDED, StartHarness

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


def schemas(harness: Any) -> list[str]:
    return [request.schema for request in harness.model.requests]


async def test_tables_and_query_are_two_calls_and_nothing_is_reviewed(start: StartHarness) -> None:
    harness = await start(replies(), tier="small", review="always")

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert schemas(harness) == ["SchemaChoice", "GeneratedSql"]
    assert done.events("check_query")[0]["reason"] == "a small model reviews nothing"


async def test_chosen_tables_of_a_large_schema_are_described(start: StartHarness) -> None:
    choice = {"tables": ["ORDERS", "nothing"], "is_clear": True}
    harness = await start(
        replies(choice, "SELECT amount FROM orders"), tier="small", small_schema_tables=0
    )

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    (choose,), (generate,) = harness.prompts("SchemaChoice"), harness.prompts("GeneratedSql")
    assert "\nexact\n" in choose
    assert "city text" in choose
    assert "city text" not in generate
    assert "amount numeric" in generate


async def test_an_unclear_task_is_judged_again_with_the_columns(start: StartHarness) -> None:
    asked = [{"question": "Which column?", "options": ["exact.price", "exact.cost"]}]
    unclear = {"is_clear": False, "clarifying_questions": asked, "assumptions": []}
    check = fixture("check", ["price numeric"], schema="ClarityCheck", json=unclear)
    harness = await start(replies(UNCLEAR, GOOD["sql"], check), tier="small", small_schema_tables=0)

    done = await harness.ask()

    assert done.result.status == NEEDS_CLARIFICATION
    (question,) = done.result.clarification.questions
    assert (question.question, list(question.options)) == ("Which column?", ["exact.price"])
    assert schemas(harness) == ["SchemaChoice", "ClarityCheck"]
    assert harness.queries() == 0


async def test_with_a_small_schema_the_first_questions_are_asked(start: StartHarness) -> None:
    harness = await start(replies(UNCLEAR), tier="small")

    done = await harness.ask()

    assert done.result.status == NEEDS_CLARIFICATION
    assert schemas(harness) == ["SchemaChoice"]


async def test_after_five_turns_the_query_is_written_on_assumptions(start: StartHarness) -> None:
    harness = await start(replies(UNCLEAR), tier="small")

    done = await harness.ask(clarification_turn_count=5)

    assert done.result.status == SUCCEEDED
    assert done.result.answer.endswith("Assumed: The metric is orders.amount.")
    assert "- The metric is orders.amount." in harness.prompts("GeneratedSql")[0]


async def test_a_failed_query_is_fed_back_and_written_again(start: StartHarness) -> None:
    feedback = ["The previous SQL query failed to execute."]
    again = fixture("again", feedback, schema="GeneratedSql", json={"sql": GOOD["sql"]})
    harness = await start(replies(CLEAR, MISSING_COLUMN["sql"], again), tier="small")
    harness.model.knobs.prose_next(2, schema="ErrorTriage")

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert len(harness.prompts("GeneratedSql")) == 2
