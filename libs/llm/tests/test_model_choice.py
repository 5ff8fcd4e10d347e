"""Models that questions choose: whose calls they are for, what is sent, and what it costs."""

from contextlib import aclosing

import pytest
from pydantic import SecretStr
from rig import Rig

from bos_errors import ConfigurationError
from bos_llm import (
    Completion,
    ModelNotConfigured,
    ModelSettings,
    current_model_choice,
    models,
    set_model_choice,
    user,
)

HELLO = [user("hello")]
PRICES = {"scripted": {"input": 1, "output": 2}, "large": {"input": 10, "output": 20}}


def asked(rig: Rig) -> list[str]:
    return [request.model for request in rig.server.requests]


async def test_calls_go_to_the_chosen_model_at_its_price(rig: Rig) -> None:
    model = await rig.model(prices=PRICES)
    set_model_choice("large")
    assert current_model_choice() == model.config.model == "large"
    whole = (await model.text(HELLO)).usage
    async with aclosing(model.stream(HELLO)) as items:
        (streamed,) = [item.usage async for item in items if isinstance(item, Completion)]
    set_model_choice("")
    own = (await model.text(HELLO)).usage
    assert asked(rig) == ["large", "large", "scripted"]
    assert [usage.model for usage in (whole, streamed, own)] == ["large", "large", "scripted"]
    assert own.cost
    assert whole.cost == streamed.cost == 10 * own.cost
    for name, calls in (("large", 2.0), ("scripted", 1.0)):
        counted = rig.metric("bos_model_calls_total", agent="sql", model=name, outcome="ok")
        assert counted == calls


async def test_a_chosen_model_without_a_price_is_counted_as_such(rig: Rig) -> None:
    model = await rig.model(prices=PRICES)
    set_model_choice("unknown")
    assert (await model.text(HELLO)).usage.cost is None
    assert rig.metric("bos_model_unpriced_calls_total", agent="sql", model="unknown") == 1.0


@pytest.mark.parametrize(
    ("variables", "sent"),
    [
        ({}, "large"),
        ({"PLANNER_MODEL": "fixed"}, "large"),
        ({"SQL_MODEL": "fixed"}, "fixed"),
        ({"SQL_MODEL_PROVIDER": "compatible"}, "scripted"),
    ],
)
@pytest.mark.requirement("N-02", "N-03")
async def test_what_the_operator_fixed_for_one_agent_stays(
    rig: Rig, variables: dict[str, str], sent: str
) -> None:
    given = {name: SecretStr(value) for name, value in variables.items()}
    model = await rig.model("sql", variables=given)
    set_model_choice("large")
    await model.text(HELLO)
    assert asked(rig) == [sent] == [model.config.model]


async def test_a_chosen_model_suffices_where_none_is_set(rig: Rig) -> None:
    model = await rig.model(model=None)
    assert not model.configured
    with pytest.raises(ModelNotConfigured, match="BOS_MODEL"):
        await model.text(HELLO)
    set_model_choice("large")
    assert model.configured
    await model.text(HELLO)
    assert asked(rig) == ["large"]


async def test_chosen_models_are_bounded(rig: Rig) -> None:
    known = await rig.models()
    for number in range(models._MAX_CHOICES - 1):  # the empty choice is one
        set_model_choice(f"m{number}")
        assert known.for_agent("sql").config.model == f"m{number}"
    set_model_choice("one-more")
    with pytest.raises(ConfigurationError, match=f"more than {models._MAX_CHOICES}"):
        await known.for_agent("sql").text(HELLO)
    set_model_choice("m0")
    await known.for_agent("planner").text(HELLO)
    assert asked(rig) == ["m0"]


def test_how_long_a_chosen_model_thinks_is_its_own_default() -> None:
    settings = ModelSettings.load(api_key="sk-1234567890", model="gpt-4.1")
    assert settings.get_agent_model_config("planner").reasoning_effort is None
    chosen = settings.get_agent_model_config("planner", "gpt-6-sol")
    assert (chosen.model, chosen.reasoning_effort) == ("gpt-6-sol", "none")
