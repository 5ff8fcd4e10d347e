"""Embedding models behind OpenAI-compatible endpoints."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from serving import served

from bos_chassis.telemetry import Telemetry
from bos_errors import InvalidArgument
from bos_llm import (
    BudgetExhausted,
    EmbeddingModel,
    ModelNotConfigured,
    Models,
    ModelSettings,
    ModelUnavailable,
    TokenBudget,
    set_budget,
)


@dataclass
class Embeddings:
    """A scripted embeddings endpoint."""

    url: str = ""
    answers: list[Callable[[dict[str, Any]], web.Response]] = field(default_factory=list)
    """What it says instead of vectors, once each."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    telemetry: Telemetry = field(default_factory=Telemetry.for_tests)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def serve(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        if self.answers:
            return self.answers.pop(0)(body)
        return vectors(body)

    async def model(self, **overrides: Any) -> EmbeddingModel:
        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        given = {"base_url": self.url, "api_key": "key-1", "provider": "compatible", **overrides}
        settings = ModelSettings.load(**given)
        models = Models(settings, self.telemetry, sleep=sleep, jitter=lambda: 1.0)
        await self.stack.enter_async_context(models)
        return models.embedding("documents", "embed-1")

    def metric(self, name: str, **labels: str) -> float:
        return self.telemetry.registry.get_sample_value(name, labels) or 0.0


def vectors(body: dict[str, Any], **usage: Any) -> web.Response:
    data = [
        {"index": n, "embedding": [float(len(text)), 1.0]} for n, text in enumerate(body["input"])
    ]
    counted = usage if usage else {"prompt_tokens": 7, "total_tokens": 7}
    return web.json_response({"model": "embed-1-2026", "data": data[::-1], "usage": counted})


def status(code: int, **headers: str) -> Callable[[dict[str, Any]], web.Response]:
    return lambda _: web.json_response(
        {"error": {"message": "no", "type": "x"}}, status=code, headers=headers
    )


def says(value: Any) -> Callable[[dict[str, Any]], web.Response]:
    return lambda _: web.json_response(value)


@pytest.fixture
async def endpoint() -> AsyncIterator[Embeddings]:
    made = Embeddings()
    async with served(web.post("/v1/embeddings", made.serve)) as url, made.stack:
        made.url = f"{url}/v1"
        yield made
    set_budget(None)


async def test_vectors_are_in_the_order_of_the_texts(endpoint: Embeddings) -> None:
    reply = await (await endpoint.model()).embed(["one", "three"])
    assert reply.vectors == [[3.0, 1.0], [5.0, 1.0]]
    assert endpoint.bodies == [
        {"model": "embed-1", "input": ["one", "three"], "encoding_format": "float"}
    ]


async def test_usage_and_cost_are_counted(endpoint: Embeddings) -> None:
    model = await endpoint.model(prices={"embed-1": {"input": 2, "output": 0}})
    usage = (await model.embed(["one"])).usage
    assert (usage.input_tokens, usage.calls, usage.cost) == (7, 1, 14e-6)
    labels = {"agent": "documents", "model": "embed-1"}
    assert endpoint.metric("bos_model_tokens_total", **labels, direction="input") == 7
    assert endpoint.metric("bos_model_calls_total", **labels, outcome="ok") == 1


async def test_tokens_are_estimated_where_endpoint_does_not_count(endpoint: Embeddings) -> None:
    endpoint.answers = [lambda body: vectors(body, other=1)]
    assert (await (await endpoint.model()).embed(["x" * 40])).usage.input_tokens == 10


async def test_failed_attempt_is_repeated(endpoint: Embeddings) -> None:
    endpoint.answers = [status(503)]
    model = await endpoint.model()
    assert len((await model.embed(["one"])).vectors) == 1
    assert len(endpoint.bodies) == 2
    assert endpoint.slept == [0.5]


@pytest.mark.parametrize(
    "reply",
    [
        [],
        {"data": None},
        {"data": [{"index": 0, "embedding": [1.0]}]},
        {"data": [{"embedding": [1.0]}, {"embedding": [1.0, 2.0]}]},
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 5, "embedding": [1.0]}]},
        {"data": [{"embedding": [1.0]}, {"embedding": ["x"]}]},
        {"data": [{"embedding": [1.0]}, {"embedding": "AACAPw=="}]},
        {"data": [{"embedding": [1.0]}, "text"]},
        {"data": [{"embedding": [1.0]}, {"embedding": [1e999]}]},
    ],
)
async def test_reply_without_usable_vectors_is_foreign(endpoint: Embeddings, reply: Any) -> None:
    endpoint.answers = [says(reply)] * 4
    with pytest.raises(ModelUnavailable) as caught:
        await (await endpoint.model()).embed(["one", "two"])
    assert caught.value.reason == "MODEL_REPLY_FOREIGN"


async def test_budget_is_spent_and_bounds_calls(endpoint: Embeddings) -> None:
    model = await endpoint.model()
    budget = TokenBudget(40)
    set_budget(budget)
    await model.embed(["one"])
    assert (budget.counted, budget.under_way) == (7, 0)
    with pytest.raises(BudgetExhausted):
        await model.embed(["x" * 100])
    assert len(endpoint.bodies) == 1


@pytest.mark.parametrize("texts", [[], ["x" * 101]])
async def test_texts_out_of_bounds_are_refused(endpoint: Embeddings, texts: list[str]) -> None:
    model = await endpoint.model(max_prompt_chars=100)
    with pytest.raises(InvalidArgument):
        await model.embed(texts)
    assert endpoint.bodies == []


async def test_missing_key_is_named() -> None:
    async with Models(ModelSettings.load(), Telemetry.for_tests()) as models:
        with pytest.raises(ModelNotConfigured, match="OPENAI_API_KEY"):
            await models.embedding("documents", "embed-1").embed(["one"])
