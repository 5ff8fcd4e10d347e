"""What calls cost: the table that comes along, and what takes its place."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from rig import Rig

from bos_errors import ConfigurationError
from bos_llm import ModelPrice, ModelSettings, user
from bos_llm.prices import PriceTable, announced_end
from bos_llm.settings import DEFAULT_MODELS

HELLO = [user("hello")]
CHEAP = ModelPrice(input=1, output=2)


def table(**overrides: ModelPrice) -> PriceTable:
    return PriceTable.read(None, overrides)


def test_default_models_have_a_price_and_another_month() -> None:
    for model in DEFAULT_MODELS.values():
        assert table().find(model) is not None, f"{model} costs nothing, says prices.json"
        end = announced_end(model)
        assert end is None or end > datetime.now(UTC).date() + timedelta(days=30), (
            f"{model} ends on {end}"
        )


def test_the_end_of_a_model_is_that_of_its_dated_ones() -> None:
    assert (
        announced_end("gpt-4.1") == announced_end("openai/gpt-4.1-2025-04-14") == date(2027, 1, 14)
    )
    assert announced_end("gpt-6-luna") is None


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("gpt-4.1-2025-04-14", "gpt-4.1"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("gpt-4-0613", "gpt-4"),
        ("models/gemini-2.5-flash", "gemini-2.5-flash"),
    ],
)
def test_a_dated_model_costs_what_its_family_does(model: str, family: str) -> None:
    assert table().find(model) == table().find(family) is not None


@pytest.mark.parametrize("model", ["gpt-4.1-turbo", "my-deployment", "", "gpt-4.10"])
def test_other_models_have_no_price(model: str) -> None:
    assert table().find(model) is None


def test_an_override_replaces_one_model_and_its_dated_ones() -> None:
    prices = PriceTable.read(None, {"gpt-4.1": CHEAP})
    assert prices.find("gpt-4.1-2025-04-14") == CHEAP
    assert prices.find("gpt-4o") == table().find("gpt-4o")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("prices.json", '{"models": {"mine": {"input": 1, "output": 2}}}'),
        ("prices.toml", "[models.mine]\ninput = 1\noutput = 2\n"),
    ],
)
def test_a_file_adds_models_and_variables_weigh_more(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    own = ModelSettings.load(prices_file=file).price_table()
    assert own.find("mine") == CHEAP
    assert own.find("gpt-4o") is not None
    dear = ModelPrice(input=9, output=9)
    assert ModelSettings.load(prices_file=file, prices={"mine": dear}).price_table().find(
        "mine"
    ) == (dear)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be read"),
        ("{", "neither JSON"),
        ('{"models": {"mine": {"input": -1, "output": 2}}}', "models.mine.input"),
    ],
)
async def test_a_file_that_cannot_be_used_is_named_at_the_start(
    rig: Rig, tmp_path: Path, text: str | None, problem: str
) -> None:
    file = tmp_path / "prices.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigurationError, match=f"BOS_MODEL_PRICES_FILE.*{problem}"):
        await rig.models(prices_file=file)


def test_cached_input_is_cheaper_where_its_price_is_known() -> None:
    price = ModelPrice(input=2, output=8, cached_input=0.5)
    assert price.of(1_000_000, 0, 400_000) == pytest.approx(1.2 + 0.2)
    assert CHEAP.of(1_000_000, 0, 400_000) == pytest.approx(1.0)


async def test_a_call_is_priced_by_its_model(rig: Rig) -> None:
    usage = (await (await rig.model(model="gpt-4.1-2025-04-14")).text(HELLO)).usage
    assert usage.cost == pytest.approx((usage.input_tokens * 2 + usage.output_tokens * 8) / 1e6)
    labels = {"agent": "sql", "model": "gpt-4.1-2025-04-14"}
    assert rig.metric("bos_model_cost_dollars_total", **labels) == pytest.approx(usage.cost)
    assert rig.metric("bos_model_unpriced_calls_total", **labels) == 0


async def test_an_unknown_model_costs_nothing_is_counted_and_said_once(rig: Rig) -> None:
    models = await rig.models()
    for agent in ("sql", "planner", "sql"):
        usage = (await models.for_agent(agent).text(HELLO)).usage
        assert usage.cost is None
        assert usage.cost_micros == 0
    assert rig.metric("bos_model_unpriced_calls_total", agent="sql", model="scripted") == 2
    assert str(rig.telemetry.logs).count("no price is known for this model") == 1
