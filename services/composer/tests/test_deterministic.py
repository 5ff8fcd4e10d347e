"""Deterministic answer without a model."""

from typing import Any

import pytest
from google.type import date_pb2

from bos.agent.v1 import AgentResult, ProposedAction
from bos.common.v1 import Column, Row, Table, Value
from bos.planner.v1 import Intent, IntentRoute, WorkingContext
from bos_composer.citations import merge
from bos_composer.deterministic import (
    NEEDS_MODEL,
    NO_DATA,
    NOTHING_FOUND,
    OUT_OF_SCOPE,
    plain_answer,
)
from bos_composer.numbers import NumberFormat

from . import conftest as make

pytestmark = pytest.mark.requirement("K-12", "K-16", "Q-08", "Q-09", "R-04")

NUMBERS = NumberFormat("en_IN")


def answer(*results: Any, **fields: Any) -> str:
    request = make.request(*results, **fields)
    return plain_answer(request, merge(request.results), NUMBERS)


def test_answers_come_in_planner_order_with_their_small_tables() -> None:
    text = answer(
        make.top_customers(), make.result("computation", answer="The share is 43.1 percent.")
    )
    assert text == (
        "Acme leads.\n\n"
        "| customer | total_revenue |\n| --- | --- |\n"
        "| Acme | Rs.1,75,206.00 |\n| Globex | Rs.99,000.50 |\n\n"
        "The share is 43.1 percent."
    )


def test_long_table_is_truncated_with_a_notice() -> None:
    text = answer(make.result(columns=["n"], rows=[[n] for n in range(25)]))
    assert text.count("\n| ") == 11
    assert text.endswith("(15 more rows)")


def test_values_are_listed_if_a_result_has_no_answer() -> None:
    text = answer(
        make.result("computation", data={"result": {"share_of_total": 0.5}, "rows": [1, 2]})
    )
    assert text == "- share of total: 0.5"


@pytest.mark.requirement("T-12", "Q-08", "K-09")
def test_failures_are_explained_beside_results() -> None:
    failed = make.result(
        "api_docs", status="failed", error=("HttpError", "Status 503 from\n https://u:p@host/x.")
    )
    text = answer(make.result(answer="12 orders."), failed)
    assert text == (
        "12 orders.\n\nThe answer is incomplete.\n\n"
        "- The api_docs agent did not succeed: the API answered with an error: "
        "Status 503 from https://host/x."
    )


@pytest.mark.requirement("Q-08", "C-24")
def test_when_nothing_succeeded_the_answer_explains_the_failure() -> None:
    text = answer(
        make.result(status="failed", error=("QueryError", "")),
        make.result(
            "rag", status="failed", error=("KeyError", "Traceback (most recent call last)")
        ),
        remarks=["The revision limit was reached."],
    )
    assert text == (
        "This could not be answered.\n\n"
        "- The sql agent did not succeed: no query gave a result.\n"
        "- The rag agent did not succeed: something unexpected went wrong.\n\n"
        "The revision limit was reached."
    )


@pytest.mark.requirement("C-24")
def test_errors_of_earlier_attempts_are_stated_once() -> None:
    """The results themselves are those of the last attempt."""
    last = make.result(status="failed", error=("QueryError", "No column b."))
    learnt = WorkingContext(
        errors_encountered=[
            "first (sql): QueryError: No column a at https://u:p@host/x.",
            "last (sql): QueryError: No column b.",
        ]
    )
    text = answer(last, working_context=learnt, remarks=["No other plan was found."])
    assert text.endswith(
        "No column b.\n\nWhat was tried before did not work either:\n\n"
        "- first (sql): QueryError: No column a at https://host/x.\n\nNo other plan was found."
    )
    assert "tried before" not in answer(last)


SAID = "The approval was denied by you, so this was not done: Mail the report to Ann."
UNDONE = (
    # type of the error, its message, the answer
    ("denied_by_user", SAID, SAID),
    ("denied_by_user", "", 'The action "Mail it" was not done: the approval was denied.'),
    ("hitl_timeout", "", 'The action "Mail it" was not done: it was not decided in time.'),
    ("hitl_skipped_non_streaming", "Mail it: not done.", "Mail it: not done. Ask again in the "),
    ("NotRun", "Not done: Mail it. It needs a total, which was denied", "Not done: Mail it. It"),
    ("BudgetExhausted", "Not run: no tokens are left.", "Not run: no tokens are left."),
    ("Skipped", "No documents", "The mail agent was skipped: No documents."),
)


@pytest.mark.requirement("K-12", "Q-02", "Q-09")
def test_what_was_not_done_is_named_with_the_reason_and_is_no_failure() -> None:
    mail = ProposedAction(tool="send_email", summary="Mail it")
    for error, message, expected in UNDONE:
        blocked = make.result(
            "mail", status="skipped", error=(error, message), proposed_actions=[mail]
        )
        text = answer(blocked)
        assert text.startswith(expected), text
        assert NOTHING_FOUND not in text
        assert answer(make.result(answer="12 orders."), blocked) == f"{text}\n\n12 orders."


OUTCOMES = (
    # outcome, text of the agent: the answer
    ("NOT_IN_SOURCE", "The data hold no weather.", "The data hold no weather."),
    ("NOT_IN_SOURCE", "", "The source of the sql agent holds nothing of the kind."),
    ("PREMISE_REFUTED", "It rose.", "It rose."),
    ("PREMISE_REFUTED", "", "What the question takes for granted is not so."),
    ("EMPTY", "No rows match.", "No rows match."),
    ("EMPTY", "", NO_DATA),
    ("PARTLY", "3 of 5.", "3 of 5.\n\nNote: This is a part of the answer only."),
    ("CUT_OFF", "Be", "Be\n\nNote: The answer of the sql agent reached its length limit and"),
    ("ANSWERED", "12 orders.", "12 orders."),
)


@pytest.mark.requirement("Q-08")
def test_each_outcome_has_its_words() -> None:
    for name, text, expected in OUTCOMES:
        found = answer(make.result(answer=text, outcome=f"OUTCOME_{name}"))
        assert found.startswith(expected), name
        assert NOTHING_FOUND not in found, name


@pytest.mark.requirement("K-04")
def test_empty_result_is_stated() -> None:
    empty_table = {"columns": ["a"], "rows": [], "data": {"sql": "SELECT 1"}}
    for empty in ({}, empty_table, {"answer": " "}, {"data": {}}):
        assert answer(make.result(**empty)) == NO_DATA, empty


@pytest.mark.requirement("C-03", "D-02")
def test_plan_without_steps_has_an_answer() -> None:
    expected = {
        Intent.INTENT_OUT_OF_SCOPE: OUT_OF_SCOPE,
        Intent.INTENT_GENERAL_QA: NEEDS_MODEL,
        Intent.INTENT_DATA_QA: NO_DATA,
        Intent.INTENT_UNSPECIFIED: NO_DATA,
    }
    found = {intent: answer(intent=IntentRoute(intent=intent)) for intent in expected}
    assert found == expected


def test_malformed_result_does_not_prevent_the_answer() -> None:
    """Third-party agents may return malformed results."""
    table = Table(
        columns=[Column(name="amount"), Column(name="day"), Column(name="missing")],
        rows=[Row(values=[Value(decimal_value="twelve"), Value(date_value=date_pb2.Date(year=1))])],
    )
    invalid = make.result()
    invalid.table.CopyFrom(table)
    future = AgentResult(agent_name="new", status=99)  # type: ignore[arg-type]
    text = answer(invalid, future)
    assert "| twelve | (unreadable) |" in text
    assert "The new agent did not succeed: something unexpected went wrong." in text
    skipped = make.result("rag", status="skipped", error=("Skipped", "No documents"))
    assert "The rag agent was skipped: No documents." in answer(skipped)
