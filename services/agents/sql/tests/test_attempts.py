"""The correction loop."""

from typing import Any

import pytest

from bos.common.v1 import Outcome
from bos_testkit.scripted_model.replies import fixture

from .conftest import (
    FAILED,
    GOOD,
    MISSING_COLUMN,
    NEEDS_CLARIFICATION,
    SUCCEEDED,
    StartHarness,
    draft,
    fixtures,
)

pytestmark = pytest.mark.requirement("D-23", "D-24", "D-25", "D-26", "D-27", "D-28", "D-29", "T-09")

FEEDBACK = "The previous SQL query failed to execute."
PATCH = {"action": "RETRY_WITH_PATCH", "patched_sql": GOOD["sql"]}


def triage(**reply: Any) -> Any:
    return fixture("triage", [], schema="ErrorTriage", json=reply)


def second_try(drafted: dict[str, Any] = GOOD) -> Any:
    return fixture("second try", [FEEDBACK], schema="QueryDraft", json=drafted)


async def test_triage_patches_a_missing_column(start: StartHarness, postgres_url: str) -> None:
    harness = await start(fixtures(triage(**PATCH), drafted=MISSING_COLUMN), url=postgres_url)

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    first, second = done.data["attempt_history"]
    assert first.keys() == {"attempt", "query", "success", "error", "latency_ms"}
    assert (first["attempt"], first["success"]) == (1, False)
    assert "amont" in first["error"]
    assert (second["attempt"], second["success"], second["error"]) == (2, True, None)
    assert len(harness.prompts("QueryDraft")) == 1
    (prompt,) = harness.prompts("ErrorTriage")
    assert "SUM(o.amont)" in prompt
    assert "[main.orders] orders (table" in prompt
    # What stands in a database's comments and cells is no order.
    assert "### Citations\n<untrusted>\n[" in prompt
    assert done.events("Error triage")[0]["action"] == "RETRY_WITH_PATCH"
    assert len(done.events("safety_check")) == 2
    (failed,) = done.events("SQL agent attempt failed")
    assert failed["attempt"] == 1
    assert failed["query"] == first["query"]
    assert failed["error"] == first["error"]
    assert done.errors() == ["SQL agent attempt failed"]


@pytest.mark.requirement("D-11", "D-24")
async def test_without_triage_the_model_gets_the_error_as_feedback(start: StartHarness) -> None:
    harness = await start(fixtures(second_try(), drafted=MISSING_COLUMN))
    harness.model.knobs.prose_next(2, schema="ErrorTriage")

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    query = done.data["attempt_history"][0]["query"]
    request = [r for r in harness.model.requests if r.schema == "QueryDraft"][1]
    feedback = request.messages[-1]["content"]
    assert feedback.startswith(
        "The previous SQL query failed to execute.\n"
        "Error details: <untrusted>\nno such column: o.amont\n</untrusted>\n"
        f"Failing query:\n<untrusted>\n{query}\n</untrusted>\n"
        "Generate a corrected read-only SQL query that addresses the error and try again using only"
        " the authorised tables."
    )
    # Earlier messages are unchanged, so that the provider's prompt cache applies.
    first, again = [r.messages for r in harness.model.requests if r.schema == "QueryDraft"]
    assert first[0] == again[0]
    assert again[1]["content"].startswith(first[1]["content"].partition("### Work")[0])
    roles = [message["role"] for message in request.messages]
    assert roles == ["system", "user", "assistant", "user"]


@pytest.mark.requirement("D-23", "D-33")
async def test_four_failures_end_the_step_with_error_and_history(start: StartHarness) -> None:
    harness = await start(fixtures(drafted=MISSING_COLUMN))

    done = await harness.ask()

    assert done.result.status == FAILED
    assert done.result.error.type == "QueryError"
    assert "failed 4 times" in done.result.error.message
    history = done.details["attempt_history"]
    assert [each["attempt"] for each in history] == [1, 2, 3, 4]
    assert not any(each["success"] for each in history)
    assert done.details["error"] == "no such column: o.amont"
    assert not done.result.error.retryable
    assert len(done.events("SQL agent attempt failed")) == 4
    assert done.events("Giving up")[0]["state"] == "FAILURE"
    assert harness.queries("query_failed") == 4
    # No triage after the last attempt.
    assert len(harness.prompts("ErrorTriage")) == 3


async def test_triage_may_stop(start: StartHarness) -> None:
    stop = triage(action="STOP", user_message="Amounts are not recorded.")
    harness = await start(fixtures(stop, drafted=MISSING_COLUMN))

    done = await harness.ask()

    assert done.result.status == FAILED
    assert done.result.error.type == "QueryError"
    assert done.result.error.message == "Amounts are not recorded."
    assert harness.queries() == 1


async def test_triage_may_ask_the_user_for_five_turns(start: StartHarness) -> None:
    """After that the error is fed back instead."""
    ask = triage(
        action="ASK_CLARIFICATION",
        clarifying_questions=[
            {"question": "Which amount?", "options": ["orders.amount", "orders.price"]}
        ],
    )
    harness = await start(fixtures(ask, second_try(), drafted=MISSING_COLUMN))

    done = await harness.ask(clarification_turn_count=4)
    limit = await harness.ask(clarification_turn_count=5)

    assert done.result.status == NEEDS_CLARIFICATION
    (question,) = done.result.clarification.questions
    assert question.question == "Which amount?"
    assert list(question.options) == ["orders.amount"], "there is no column price"
    assert limit.result.status == SUCCEEDED


async def test_a_failed_patch_is_followed_by_a_new_query(start: StartHarness) -> None:
    bad = triage(**{**PATCH, "patched_sql": "SELECT colour FROM orders"})
    empty = {"action": "RETRY_WITH_PATCH"}
    no_patch = fixture("no patch", ["no such column: colour"], schema="ErrorTriage", json=empty)
    harness = await start(fixtures(bad, no_patch, second_try(), drafted=MISSING_COLUMN))

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    errors = [each["error"] for each in done.data["attempt_history"]]
    assert errors == ["no such column: o.amont", "no such column: colour", None]
    # The next draft has both failures in its conversation.
    assert harness.prompts("QueryDraft")[1].count(FEEDBACK) == 2


async def test_a_patch_that_has_failed_before_does_not_run_again(start: StartHarness) -> None:
    same = triage(action="RETRY_WITH_PATCH", patched_sql=MISSING_COLUMN["sql"])
    harness = await start(fixtures(same, second_try(), drafted=MISSING_COLUMN))

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert harness.queries("query_failed") == 1


async def test_after_a_failure_the_model_may_need_another_table(start: StartHarness) -> None:
    needing = {**draft(""), "needs_tables": ["exact"]}
    wanting = fixture("wanting", [FEEDBACK], schema="QueryDraft", json=needing)
    query = draft("SELECT note FROM exact")
    seeing = fixture("seeing", [FEEDBACK, "share double"], schema="QueryDraft", json=query)
    harness = await start(fixtures(wanting, seeing, drafted=MISSING_COLUMN), small_schema_tables=0)
    harness.model.knobs.prose_next(2, schema="ErrorTriage")

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert done.data["used_tables"] == ["exact"]
    assert [each["success"] for each in done.data["attempt_history"]] == [False, True]


async def test_an_unparsable_query_is_corrected_and_never_sent(start: StartHarness) -> None:
    """The guard finds a syntax error before the database does."""
    harness = await start(fixtures(second_try(), drafted=draft("SELECT city FROM WHERE")))

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert len(done.data["attempt_history"]) == 2
    assert harness.queries() == 1
    assert harness.prompts("ErrorTriage") == []


@pytest.mark.requirement("D-16")
async def test_a_slow_query_is_stopped_and_counts_as_a_failed_attempt(start: StartHarness) -> None:
    slow = (
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000)"
        " SELECT COUNT(*) AS c FROM n"
    )
    harness = await start(
        fixtures(second_try(), drafted=draft(slow)), query_timeout_s=0.2, max_attempts=2
    )

    done = await harness.ask()

    assert done.result.status == SUCCEEDED
    assert harness.queries("query_timed_out") == 1


@pytest.mark.parametrize("is_clear", [True, False])
async def test_what_the_data_do_not_hold_is_no_failure(start: StartHarness, is_clear: bool) -> None:
    nothing = {"is_clear": is_clear, "sql": "", "notes": "There is no weather in this database."}
    harness = await start(fixtures(drafted=nothing))

    done = await harness.ask()

    assert (done.result.status, done.result.outcome) == (SUCCEEDED, Outcome.OUTCOME_NOT_IN_SOURCE)
    assert done.result.answer == "The data do not hold this. There is no weather in this database."
    assert not done.result.HasField("table")
    assert harness.queries() == 0
