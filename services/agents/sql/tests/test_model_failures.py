"""Failures of the model; ``libs/agentkit`` and ``libs/llm`` show what each of them is called."""

from typing import Any

import pytest

from .conftest import FAILED, SUCCEEDED, StartHarness

pytestmark = pytest.mark.requirement("D-26", "Q-01", "Q-06")


@pytest.mark.parametrize(
    ("tier", "knob", "options", "error"),
    [
        ("standard", "prose_next", {}, "ModelOutputInvalid"),
        ("standard", "fail_next", {"status": 500}, "ModelUnavailable"),
        ("small", "prose_next", {}, "ModelOutputInvalid"),
    ],
)
async def test_an_unusable_reply_for_the_query_fails_the_step(
    start: StartHarness, tier: str, knob: str, options: dict[str, Any], error: str
) -> None:
    harness = await start(tier=tier)
    schema = "SchemaChoice" if tier == "small" else "QueryDraft"
    getattr(harness.model.knobs, knob)(50, schema=schema, **options)

    done = await harness.ask()

    assert done.result.status == FAILED
    assert done.result.error.type == error
    assert harness.queries() == 0
    assert done.errors()


async def test_without_a_model_the_missing_setting_is_named(start: StartHarness) -> None:
    harness = await start(models=False)

    done = await harness.ask()

    assert done.result.status == FAILED
    assert done.result.error.type == "ConfigurationError"
    assert "OPENAI_API_KEY" in done.result.error.message
    assert not done.result.error.retryable
    assert harness.queries() == 0


@pytest.mark.parametrize(
    ("knob", "options"), [("prose_next", {}), ("fail_next", {"status": 429, "retry_after": 60})]
)
async def test_without_an_interpretation_the_answer_is_a_sentence(
    start: StartHarness, knob: str, options: dict[str, Any]
) -> None:
    harness = await start()
    getattr(harness.model.knobs, knob)(50, schema="ResultInterpretation", **options)

    done = await harness.ask(is_final_answer=True)

    assert done.result.status == SUCCEEDED
    assert done.result.answer == "3 rows with city, total: Agra, 40.4; Pune, 30.3; Delhi, 5."
    assert len(done.result.table.rows) == 3
    assert done.events("The model gave no ResultInterpretation; going on without it")
