"""What a run consumed, from the model's own count to every place where it is shown."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterable

import pytest
import pytest_asyncio
from pydantic import SecretStr
from rich.console import Console

from bos.common.v1 import Usage
from bos.gateway.v1 import RunStatus
from bos_chassis.telemetry import Telemetry
from bos_cli.render.parts import show_end
from bos_mcp_db.settings import DatabaseSettings

from .conftest import StartHarness
from .harness import Harness, open_harness

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTION = (
    "Which five customers brought the most revenue last quarter, and what share of the total is "
    "that?"
)
# Whole micro-dollars per token, so that no sum depends on where it was rounded.
PRICES = {"scripted": {"input": 3, "output": 7}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    company: DatabaseSettings, store_url: str, clean_environment: None
) -> AsyncIterator[Harness]:
    async with open_harness(
        company, store_url, models={"prices": PRICES}, gateway={"max_run_tokens": 200_000}
    ) as harness:
        yield harness


def total(usages: Iterable[Usage]) -> tuple[int, int, int, int]:
    """Calls, tokens sent, tokens received and micro-dollars."""
    each = [(u.model_calls, u.input_tokens, u.output_tokens, u.cost_micros) for u in usages]
    calls, sent, received, cost = (sum(column) for column in zip(*each, strict=True))
    return calls, sent, received, cost


def counted(telemetry: Telemetry, name: str, **labels: str) -> float:
    return sum(
        sample.value
        for metric in telemetry.registry.collect()
        for sample in metric.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


@pytest.mark.requirement("A-17")
async def test_usage_agrees_in_results_events_response_and_metrics(
    harness: Harness,
) -> None:
    outcome = await harness.ask(QUESTION)
    model = harness.model
    cost = 3 * model.input_tokens + 7 * model.output_tokens
    reported = (model.calls, model.input_tokens, model.output_tokens, cost)
    assert min(reported) > 0

    whole = outcome.response.metadata.usage
    assert total([whole]) == reported
    assert list(whole.models) == ["scripted"]
    assert whole.unreported_tokens == 0

    # Results, in the response and in the public events, say what each step took of it.
    results = {result.agent_name: result.usage for result in outcome.response.agent_results}
    finished = [e.step_finished for e in outcome.events if e.HasField("step_finished")]
    assert {f.result.agent_name: f.result.usage for f in finished} == results
    assert set(results) == {"sql", "computation"}
    for usage in results.values():
        assert min(total([usage])) > 0
        assert list(usage.models) == ["scripted"]

    # Metrics say it by agent and model; planner and composer took the rest.
    by_agent: dict[str, Usage] = {}
    for agent in ("planner", "sql", "computation", "composer"):
        labels = {"agent": agent, "model": "scripted"}
        tokens = {
            direction: counted(
                harness.telemetry, "bos_model_tokens_total", **labels, direction=direction
            )
            for direction in ("input", "output")
        }
        dollars = counted(harness.telemetry, "bos_model_cost_dollars_total", **labels)
        by_agent[agent] = Usage(
            model_calls=int(counted(harness.telemetry, "bos_model_calls_total", **labels)),
            input_tokens=int(tokens["input"]),
            output_tokens=int(tokens["output"]),
            cost_micros=round(dollars * 1_000_000),
        )
    for agent, usage in results.items():
        assert total([by_agent[agent]]) == total([usage])
    assert total(by_agent.values()) == reported
    assert (
        counted(harness.telemetry, "bos_run_tokens_total", kind="reported")
        == reported[1] + reported[2]
    )

    # And so do those who look later, or at a terminal.
    (again,) = [await harness.client.get_run(outcome.response.run_id)]
    assert again.response.metadata.usage == whole
    shown = io.StringIO()
    show_end(Console(file=shown, width=400), outcome.response)
    assert f"{reported[0]} model calls, {reported[1] + reported[2]} tokens" in shown.getvalue()
    assert f"${cost / 1_000_000:.4f}" in shown.getvalue()
    assert "(scripted)" in shown.getvalue()


@pytest.mark.requirement("A-24")
async def test_calls_go_to_the_chosen_model_at_its_price(
    start_harness: StartHarness,
) -> None:
    prices = {**PRICES, "large": {"input": 30, "output": 70}, "fixed": {"input": 1, "output": 1}}
    harness = await start_harness(
        models={"prices": prices, "variables": {"COMPUTATION_MODEL": SecretStr("fixed")}},
        gateway={"models": {"large": "Thorough"}},
    )
    outcome = await harness.ask(QUESTION, model="large")
    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    sent = {(request.schema, request.model) for request in harness.model.requests}
    assert ("ComputationPlan", "fixed") in sent  # the operator chose for this agent alone
    others = {schema: model for schema, model in sent if schema != "ComputationPlan"}
    assert {"PlannerReply", "QueryDraft", None} <= others.keys()
    assert set(others.values()) == {"large"}

    usage = outcome.response.metadata.usage
    assert sorted(usage.models) == ["fixed", "large"]
    cost = sum(
        prices[request.model]["input"] * request.prompt_tokens
        + prices[request.model]["output"] * request.reply_tokens
        for request in harness.model.requests
    )
    assert usage.cost_micros == cost
    (run,) = [await harness.client.get_run(outcome.response.run_id)]
    assert run.model == "large"
