"""A token budget at the HTTP boundary: what exceeds it is never sent, and what is counted."""

import asyncio
from contextlib import aclosing

import pytest
from pydantic import BaseModel
from rig import Rig

from bos_llm import (
    BudgetExhausted,
    Completion,
    ModelOutputInvalid,
    ModelUnavailable,
    TextDelta,
    TokenBudget,
    set_budget,
    user,
)
from bos_testkit.waiting import eventually

HELLO = [user("hello")]
PROMPT = len("hello") // 2 + 8
"""What the prompt is taken for."""


class Plan(BaseModel):
    steps: list[str]
    note: str | None


def given(tokens: int) -> TokenBudget:
    budget = TokenBudget(tokens)
    set_budget(budget)
    return budget


async def test_call_within_budget_is_bounded_and_counted(rig: Rig) -> None:
    budget = given(PROMPT + 100)
    completion = await (await rig.model()).text(HELLO)
    assert rig.server.requests[-1].body["max_tokens"] == 100
    consumed = completion.usage.input_tokens + completion.usage.output_tokens
    assert budget.counted == consumed > 0
    assert budget.left == PROMPT + 100 - consumed


async def test_without_a_budget_a_reply_has_the_bound_of_the_settings(rig: Rig) -> None:
    set_budget(None)
    model = await rig.model(max_reply_tokens=777)
    for given, sent in ((None, 777), (70, 70)):
        await model.text(HELLO, max_tokens=given)
        assert rig.server.requests[-1].body["max_tokens"] == sent


async def test_budget_without_a_bound_admits_every_call_and_counts_it(rig: Rig) -> None:
    budget = TokenBudget(None)
    set_budget(budget)
    usage = (await (await rig.model()).text(HELLO)).usage
    assert budget.counted == usage.input_tokens + usage.output_tokens
    assert budget.abandoned == 0
    assert rig.server.requests[-1].body["max_tokens"] == 4096


@pytest.mark.parametrize(
    ("tokens", "sent"), [(PROMPT + 64, True), (PROMPT + 63, False), (0, False)]
)
async def test_call_that_cannot_fit_is_never_sent(rig: Rig, tokens: int, sent: bool) -> None:
    budget = given(tokens)
    model = await rig.model()
    if sent:
        await model.text(HELLO)
    else:
        with pytest.raises(BudgetExhausted, match="BOS_GATEWAY_MAX_RUN_TOKENS"):
            await model.text(HELLO)
        assert budget.counted == 0
    assert rig.server.calls == int(sent)


async def test_call_waits_for_tokens_that_another_one_holds(rig: Rig) -> None:
    budget = given(2 * PROMPT + 120)
    model = await rig.model()
    texts = await asyncio.gather(model.text(HELLO), model.text(HELLO))
    assert [text.usage.calls for text in texts] == [1, 1]
    assert budget.counted == sum(t.usage.input_tokens + t.usage.output_tokens for t in texts)


async def test_attempts_that_the_endpoint_turned_away_cost_nothing(rig: Rig) -> None:
    rig.server.knobs.fail_next(2, status=429, retry_after=0)
    budget = given(1000)
    usage = (await (await rig.model()).text(HELLO)).usage
    assert rig.server.calls == 3
    assert budget.abandoned == 0
    assert budget.counted == usage.input_tokens + usage.output_tokens


async def test_unreachable_endpoint_costs_no_tokens(rig: Rig, unused_port: int) -> None:
    budget = given(1000)
    model = await rig.model(base_url=f"http://127.0.0.1:{unused_port}/v1", max_attempts=2)
    with pytest.raises(ModelUnavailable):
        await model.text(HELLO)
    assert budget.counted == 0


async def test_cancelled_call_counts_all_it_could_have_consumed(rig: Rig) -> None:
    rig.server.knobs.latency_s = 30.0
    budget = given(1000)
    model = await rig.model()
    call = asyncio.create_task(model.text(HELLO, max_tokens=100))
    await eventually(lambda: rig.server.calls == 1)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert budget.counted == PROMPT + 100
    assert budget.left == 900 - PROMPT


async def test_stream_is_bounded_and_counted(rig: Rig) -> None:
    budget = given(PROMPT + 100)
    async with aclosing((await rig.model()).stream(HELLO)) as stream:
        items = [item async for item in stream]
    assert rig.server.requests[-1].body["max_tokens"] == 100
    end = items[-1]
    assert isinstance(end, Completion)
    assert budget.counted == end.usage.input_tokens + end.usage.output_tokens > 0


async def test_stream_left_early_counts_all_it_could_have_consumed(rig: Rig) -> None:
    budget = given(1000)
    async with aclosing((await rig.model()).stream(HELLO, max_tokens=100)) as stream:
        async for item in stream:
            assert isinstance(item, TextDelta)
            break
    assert budget.counted == PROMPT + 100


async def test_the_schema_of_a_structured_reply_counts_as_prompt(rig: Rig) -> None:
    given(PROMPT + 64)
    with pytest.raises(BudgetExhausted):
        await (await rig.model()).structured(HELLO, Plan)
    assert rig.server.calls == 0


async def test_repair_beyond_the_budget_is_not_sent(rig: Rig) -> None:
    rig.server.knobs.malformed_json_next(2)
    budget = given(400)
    with pytest.raises((BudgetExhausted, ModelOutputInvalid)) as caught:
        await (await rig.model()).structured([user("top five " + "x" * 200)], Plan)
    assert isinstance(caught.value, BudgetExhausted)
    assert rig.server.calls == 1
    usage = caught.value.usage
    assert budget.counted == usage.input_tokens + usage.output_tokens
