"""The scripted model as any OpenAI client sees it."""

import asyncio
import math
import signal
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI, DefaultAioHttpClient
from openai.types.chat import ChatCompletion

from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory, scripted_model
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import TEXT_CALLS, UNPREPARED, ScriptedModel
from bos_testkit.waiting import eventually

__all__ = ["scripted_model"]

GREETING = fixture("greeting", ["hello"], text="Good day to you.")
PLAN = fixture("plan", ["five"], schema="Plan", json={"steps": ["a", "b"]})
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "Plan", "schema": {}}}


def messages(text: str) -> Any:
    return [{"role": "system", "content": "Be kind."}, {"role": "user", "content": text}]


@pytest.fixture
async def server(scripted_model: ScriptedModelFactory) -> ScriptedModel:
    return await scripted_model(GREETING, PLAN)


@pytest.fixture
async def client(server: ScriptedModel) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(
        base_url=server.base_url,
        api_key="sk-very-secret-key",
        max_retries=0,
        http_client=DefaultAioHttpClient(),
    ) as client:
        yield client


async def ask(client: AsyncOpenAI, text: str = "hello", **options: Any) -> ChatCompletion:
    reply: ChatCompletion = await client.chat.completions.create(
        model="any", messages=messages(text), **options
    )
    return reply


async def test_a_fallback_answers_what_no_fixture_fits() -> None:
    asked: list[tuple[str | None, str]] = []

    def fallback(schema: str | None, prompt: str) -> str | None:
        asked.append((schema, prompt.splitlines()[-1]))
        return "It is sunny." if "weather" in prompt else None

    async with (
        ScriptedModel([GREETING], fallback=fallback) as server,
        AsyncOpenAI(base_url=server.base_url, api_key="sk", max_retries=0) as client,
    ):
        replies = [(await ask(client, text)).choices[0].message for text in ("weather", "tides")]
        greeted = (await ask(client)).choices[0].message

    assert [each.content for each in replies] == ["It is sunny.", None]
    assert replies[1].refusal == UNPREPARED
    assert greeted.content == "Good day to you."
    assert asked == [(None, "weather"), (None, "tides")]


async def test_any_other_prompt_is_declined_honestly(client: AsyncOpenAI) -> None:
    message = (await ask(client, "weather")).choices[0].message
    assert (message.content, message.refusal) == (None, UNPREPARED)
    message = (await ask(client, "weather", response_format=FORMAT)).choices[0].message
    assert (message.content, message.refusal) == (None, UNPREPARED)


async def test_a_stream_has_the_words_a_reason_and_the_usage_if_asked(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="any",
        messages=messages("hello"),
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    words = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
    assert words == ["Good ", "day ", "to ", "you."]
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == 5
    plain = await client.chat.completions.create(
        model="any", messages=messages("hello"), stream=True
    )
    assert all(chunk.usage is None for chunk in [c async for c in plain])


async def test_embeddings_are_deterministic_unit_vectors(client: AsyncOpenAI) -> None:
    async def embed(*texts: str, **options: Any) -> list[list[float]]:
        reply = await client.embeddings.create(model="any", input=list(texts), **options)
        return [item.embedding for item in reply.data]

    (one, two), (again,) = await embed("open invoices", "blue sky"), await embed("open invoices")
    assert one == again
    assert one != two
    assert len(one) == 256
    assert math.isclose(sum(value * value for value in one), 1.0, rel_tol=1e-6)
    (short,) = await embed("open invoices", dimensions=64, encoding_format="float")
    assert len(short) == 64
    (near,) = await embed("open invoices of May")
    assert sum(a * b for a, b in zip(one, near, strict=True)) > 0.5
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        await embed("x", dimensions=0)


async def test_models_are_listed(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["scripted"]


async def test_a_key_is_demanded_of_every_request() -> None:
    async with ScriptedModel([GREETING], key="the-key") as model:
        for given, status in (("the-key", 200), ("another", 401), ("", 401)):
            headers = {"Authorization": f"Bearer {given}"} if given else {}
            async with aiohttp.ClientSession(headers=headers) as session:
                body = {"model": "any", "messages": messages("hello")}
                async with session.post(f"{model.base_url}/chat/completions", json=body) as reply:
                    assert reply.status == status
                async with session.get(f"{model.base_url}/models") as reply:
                    assert reply.status == status
        assert model.calls == 1


async def test_requests_are_recorded_without_secrets_and_bounded(
    client: AsyncOpenAI, server: ScriptedModel
) -> None:
    await ask(client, temperature=0.5)
    recorded = server.requests[-1]
    assert (recorded.model, recorded.schema, recorded.fixture) == ("any", None, "greeting")
    assert recorded.prompt == "Be kind.\nhello"
    assert recorded.body["temperature"] == 0.5
    assert recorded.headers["authorization"] == "***"
    assert "sk-very-secret-key" not in str(recorded)
    assert server.requests.maxlen == 200


async def test_fixture_errors_differ_from_unknown_prompts(
    scripted_model: ScriptedModelFactory,
) -> None:
    server = await scripted_model(
        GREETING,
        fixture("bye", ["bye"], text="Bye."),
        fixture("count", ["count"], text="${n}", capture={"n": "n=([0-9]+)"}),
    )
    async with AsyncOpenAI(
        base_url=server.base_url, api_key="k", http_client=DefaultAioHttpClient()
    ) as client:
        with pytest.raises(openai.BadRequestError, match="'greeting' and 'bye'"):
            await ask(client, "hello and bye")
        with pytest.raises(openai.BadRequestError, match="capture 'n'"):
            await ask(client, "count")
    assert server.requests[-1].problem is not None


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "model"),
        (b'{"model": "m"}', "messages"),
        (b'{"model": "m", "messages": [{"content": "x"}]}', "role"),
        (
            b'{"model": "m", "messages": [{"role": "user"}], "response_format": '
            b'{"type": "json_schema"}}',
            "response_format",
        ),
    ],
)
async def test_bad_requests_are_refused(server: ScriptedModel, body: bytes, problem: str) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.base_url}/chat/completions", data=body) as response,
    ):
        assert response.status == 400
        assert problem in (await response.json())["error"]["message"]


async def test_faults_are_scoped_and_shown_in_order(
    client: AsyncOpenAI, server: ScriptedModel
) -> None:
    server.knobs.fail_next(2, status=500, schema="Plan")
    server.knobs.fail_next(status=503, schema=TEXT_CALLS)
    with pytest.raises(openai.InternalServerError) as caught:
        await ask(client)
    assert caught.value.status_code == 503
    await ask(client)
    for _ in range(2):
        with pytest.raises(openai.InternalServerError):
            await ask(client, "five", response_format=FORMAT)
    await ask(client, "five", response_format=FORMAT)
    with pytest.raises(ValueError, match="at least 1"):
        server.knobs.prose_next(0)
    server.knobs.fail_next(9)
    server.knobs.clear()
    await ask(client)


async def test_the_server_ends_at_once_though_replies_are_pending() -> None:
    async with ScriptedModel([GREETING]) as server:
        server.knobs.latency_s = 60
        async with AsyncOpenAI(
            base_url=server.base_url,
            api_key="k",
            max_retries=0,
            http_client=DefaultAioHttpClient(),
        ) as client:
            call = asyncio.create_task(ask(client))
            await eventually(lambda: server.in_flight == 1)
            async with asyncio.timeout(1):
                await server.__aexit__(None, None, None)
            with pytest.raises(openai.APIError):
                await call


async def test_the_server_leaves_the_signals_of_the_process_alone() -> None:
    handled = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(each) for each in handled]
    async with ScriptedModel():
        assert [signal.getsignal(each) for each in handled] == before
