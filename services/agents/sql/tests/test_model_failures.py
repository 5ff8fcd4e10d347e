"""Failures of the model."""

from typing import Any

import pytest

from .conftest import FAILED, SUCCEEDED, StartHarness, fixtures

pytestmark = pytest.mark.requirement("D-26", "Q-01", "Q-06")


@pytest.mark.parametrize(
    ("knob", "options", "error"),
    [
        ("prose_next", {}, "ModelOutputInvalid"),
        ("half_json_next", {}, "ModelOutputInvalid"),
        ("empty_next", {}, "ModelOutputInvalid"),
        ("malformed_json_next", {}, "ModelOutputInvalid"),
        ("html_next", {"as_content": True}, "ModelOutputInvalid"),
        ("html_next", {}, "ModelUnavailable"),
        ("fail_next", {"status": 500}, "ModelUnavailable"),
        ("fail_next", {"status": 429}, "ModelRateLimited"),
        ("fail_next", {"status": 401}, "ConfigurationError"),
    ],
)
@pytest.mark.parametrize("tier", ["standard", "small"])
async def test_an_unusable_reply_for_the_query_fails_the_step(
    start: StartHarness, knob: str, options: dict[str, Any], error: str, tier: str
) -> None:
    harness = await start(tier=tier)
    schema = "SchemaChoice" if tier == "small" else "QueryDraft"
    getattr(harness.model.knobs, knob)(50, schema=schema, **options)

    done = await harness.ask()

    assert done.result.status == FAILED
    assert done.result.error.type == error
    assert harness.queries() == 0
    assert done.errors()


async def test_a_request_unknown_to_the_scripted_model_is_a_refusal(
    start: StartHarness,
) -> None:
    harness = await start(fixtures()[1:])

    done = await harness.ask()

    assert done.result.error.type == "ModelRefused"


@pytest.mark.requirement("D-26")
async def test_without_a_model_the_missing_setting_is_named(start: StartHarness) -> None:
    harness = await start(models=False)

    done = await harness.ask()

    assert done.result.status == FAILED
    assert done.result.error.type == "ConfigurationError"
    assert "OPENAI_API_KEY" in done.result.error.message
    assert not done.result.error.retryable
    assert harness.queries() == 0


@pytest.mark.parametrize("knob", ["prose_next", "half_json_next", "empty_next", "html_next"])
async def test_without_an_interpretation_the_answer_is_a_plain_sentence(
    start: StartHarness, knob: str
) -> None:
    harness = await start()
    getattr(harness.model.knobs, knob)(50, schema="ResultInterpretation")

    done = await harness.ask(is_final_answer=True)

    assert done.result.status == SUCCEEDED
    assert done.result.answer == "3 rows with city, total: Agra, 40.4; Pune, 30.3; Delhi, 5."
    assert len(done.result.table.rows) == 3
    assert done.events("The model gave no ResultInterpretation; going on without it")


async def test_tokens_of_unusable_replies_are_counted(start: StartHarness) -> None:
    harness = await start(review="always")
    harness.model.knobs.prose_next(2, schema="QueryReview")

    done = await harness.ask(is_final_answer=True)

    # Query, two attempts at a review, interpretation.
    assert done.result.usage.model_calls == 4


async def test_a_rate_limited_interpretation_does_not_delay_the_result(start: StartHarness) -> None:
    harness = await start()
    harness.model.knobs.fail_next(50, status=429, retry_after=60, schema="ResultInterpretation")

    done = await harness.ask(is_final_answer=True)

    assert done.result.status == SUCCEEDED
    assert done.data["row_count"] == 3


@pytest.mark.requirement("Q-06", "D-26")
async def test_an_unexpected_error_is_not_retryable(
    start: StartHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No correction, no other attempt, and no raw exception text."""
    harness = await start()

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a secret detail")

    monkeypatch.setattr("bos_sql.steps.review.parse_results", broken)

    done = await harness.ask()

    assert done.result.status == FAILED
    assert done.result.error.type == "ZeroDivisionError"
    assert "secret" not in str(done.result)
    assert not done.result.error.retryable
    assert harness.queries() == 1
