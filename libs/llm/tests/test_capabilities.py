"""What endpoints refuse is learnt: one request more the first time, none the next."""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from pydantic import BaseModel
from rig import Rig
from serving import endpoint_of

from bos_errors import BosError, InvalidArgument
from bos_llm import (
    Completion,
    ModelNotConfigured,
    ModelRequestRejected,
    ModelUnavailable,
    set_key_profile,
    system,
    user,
)
from bos_llm.endpoints.capabilities import Ladder
from bos_llm.endpoints.error_reply import read_refusal
from bos_llm.endpoints.providers import PROVIDERS, Capabilities, provider_row

Rule = Callable[[dict[str, Any]], tuple[int, Any] | None]
ASK = [system("Answer as JSON."), user("Which tables?")]


class Choice(BaseModel):
    """What the model is asked for."""

    tables: list[str]


@dataclass
class Endpoint:
    """Refuses what its rules refuse, and answers everything else."""

    rules: list[Rule] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        for rule in self.rules:
            refusal = rule(body)
            if refusal is not None:
                return web.json_response(refusal[1], status=refusal[0])
        message = {"role": "assistant", "content": '{"tables": ["orders"]}'}
        usage = {"prompt_tokens": 50, "completion_tokens": 5}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return web.json_response({"model": "m", "choices": [choice], "usage": usage})
        chunk = {"choices": [{"index": 0, "delta": message, "finish_reason": "stop"}]}
        text = f"data: {web.json_response(chunk).text}\n\ndata: [DONE]\n\n"
        return web.Response(text=text, content_type="text/event-stream")


@asynccontextmanager
async def served(*rules: Rule) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(list(rules))
    async with endpoint_of(endpoint.answer) as endpoint.url:
        yield endpoint


def refuses(name: str, *, status: int = 400, param: str | None = "", words: str = "") -> Rule:
    """As OpenAI does: the parameter is named in a field, or else in the words alone."""

    def rule(body: dict[str, Any]) -> tuple[int, Any] | None:
        if name not in body:
            return None
        said = words or f"Unsupported parameter: '{name}' is not supported with this model."
        error = {"message": said, "param": name if param == "" else param, "code": None}
        return status, {"error": error}

    return rule


def as_fastapi(name: str) -> Rule:
    """As Mistral and older vLLM do."""

    def rule(body: dict[str, Any]) -> tuple[int, Any] | None:
        problem = {
            "type": "extra_forbidden",
            "loc": ["body", name],
            "msg": "Extra inputs are not permitted",
        }
        return (422, {"detail": [problem]}) if name in body else None

    return rule


@pytest.mark.parametrize(
    ("rule", "settings", "gone"),
    [
        (refuses("temperature"), {}, "temperature"),
        (refuses("temperature", param=None), {}, "temperature"),
        (refuses("reasoning_effort"), {"reasoning_effort": "none"}, "reasoning_effort"),
        (as_fastapi("max_tokens"), {}, "max_tokens"),
    ],
)
async def test_a_refused_parameter_is_left_out_from_then_on(
    rig: Rig, rule: Rule, settings: dict[str, Any], gone: str
) -> None:
    async with served(rule) as endpoint:
        model = await rig.model(base_url=endpoint.url, **settings)
        for _ in range(2):
            assert (await model.structured(ASK, Choice)).value.tables == ["orders"]
        assert len(endpoint.bodies) == 3
        assert gone in endpoint.bodies[0]
        assert all(gone not in body for body in endpoint.bodies[1:])
        assert rig.slept == []


async def test_the_bound_of_the_reply_changes_its_name_and_stays(rig: Rig) -> None:
    async with served(refuses("max_tokens")) as endpoint:
        await (await rig.model(base_url=endpoint.url)).text(ASK)
        assert endpoint.bodies[-1]["max_completion_tokens"] == 4096


async def test_where_neither_name_is_taken_no_bound_is_sent(rig: Rig) -> None:
    async with served(refuses("max_tokens"), refuses("max_completion_tokens")) as endpoint:
        await (await rig.model(base_url=endpoint.url)).text(ASK)
        assert not {"max_tokens", "max_completion_tokens"} & endpoint.bodies[-1].keys()


@pytest.mark.parametrize(
    ("words", "then"),
    [
        ("This response_format type is unavailable now", None),
        ("'response_format.type' must be 'json_object' or 'text'", {"type": "json_object"}),
    ],
)
async def test_without_schemas_json_is_asked_for_in_words(
    rig: Rig, words: str, then: dict[str, str] | None
) -> None:
    def rule(body: dict[str, Any]) -> tuple[int, Any] | None:
        asked = body.get("response_format", {}).get("type")
        return (400, {"error": words}) if asked == "json_schema" else None

    async with served(rule) as endpoint:
        model = await rig.model(base_url=endpoint.url, schema_in_prompt="never")
        assert (await model.structured(ASK, Choice)).value.tables == ["orders"]
        last = endpoint.bodies[-1]
        assert last.get("response_format") == then
        assert '"tables"' in last["messages"][0]["content"]
        assert '"tables"' not in endpoint.bodies[0]["messages"][0]["content"]


async def test_streams_learn_as_well(rig: Rig) -> None:
    async with served(refuses("temperature"), refuses("stream_options")) as endpoint:
        model = await rig.model(base_url=endpoint.url)
        async with aclosing(model.stream(ASK)) as stream:
            items = [item async for item in stream]
        assert isinstance(items[-1], Completion)
        assert len(endpoint.bodies) == 3


async def test_required_parameter_is_named_with_its_setting(rig: Rig) -> None:
    def rule(body: dict[str, Any]) -> tuple[int, Any] | None:
        error = {"message": "secret sk-123: bad temperature", "param": "temperature"}
        return 400, {"error": error}

    async with served(rule) as endpoint:
        model = await rig.model(base_url=endpoint.url, extra_body={"temperature": 3})
        with pytest.raises(ModelRequestRejected) as caught:
            await model.text(ASK)
        assert "compatible" in caught.value.message
        assert "temperature" in caught.value.message
        assert "BOS_MODEL_TEMPERATURE" in caught.value.message
        assert "sk-123" not in caught.value.message
        assert len(endpoint.bodies) <= 2


async def test_a_window_too_small_shortens_the_reply(rig: Rig) -> None:
    def rule(body: dict[str, Any]) -> tuple[int, Any] | None:
        prompt = len(body["messages"][0]["content"]) // 3
        if body["max_tokens"] + prompt <= 4096:
            return None
        words = (
            "This model's maximum context length is 4096 tokens. However, your request has "
            f"{prompt} input tokens plus {body['max_tokens']} 'max_tokens'."
        )
        return 400, {"error": {"message": words, "code": 400, "param": "max_tokens"}}

    async with served(rule) as endpoint:
        model = await rig.model(base_url=endpoint.url)
        await model.text([user("x" * 9_000)])
        assert len(endpoint.bodies) == 2
        assert endpoint.bodies[1]["max_tokens"] < 1096
        # A shorter prompt leaves more of the window.
        await model.text([user("x" * 300)])
        assert endpoint.bodies[-1]["max_tokens"] > 2000


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": "maximum context length is 4096 tokens", "code": 400}),
        (400, {"type": "exceed_context_size_error", "code": 400, "message": "too big"}),
        (400, {"message": "litellm.ContextWindowExceededError: too long", "code": "400"}),
        (413, {"message": "no"}),
    ],
)
async def test_too_long_prompt_has_an_error_of_its_own(rig: Rig, status: int, error: Any) -> None:
    async with served(lambda _: (status, {"error": error})) as endpoint:
        with pytest.raises(InvalidArgument) as caught:
            await (await rig.model(base_url=endpoint.url)).text(ASK)
        assert caught.value.violations[0].field == "messages"
        assert len(endpoint.bodies) <= 2


@pytest.mark.parametrize(
    "words",
    [
        "Invalid model name passed in model=foo. Call `/v1/models`",
        "The model `foo` does not exist",
    ],
)
async def test_an_unknown_model_names_the_setting(rig: Rig, words: str) -> None:
    async with served(lambda _: (400, {"error": {"message": words}})) as endpoint:
        with pytest.raises(ModelNotConfigured, match="BOS_MODEL"):
            await (await rig.model(base_url=endpoint.url)).text(ASK)
        assert len(endpoint.bodies) == 1


async def test_a_request_refused_for_no_known_reason_is_not_repeated(rig: Rig) -> None:
    async with served(lambda _: (400, {"error": {"message": "I am a teapot"}})) as endpoint:
        with pytest.raises(ModelRequestRejected, match="bos doctor"):
            await (await rig.model(base_url=endpoint.url)).text(ASK)
        assert len(endpoint.bodies) == 1


@pytest.mark.parametrize("body", [None, [[]], 7, {"error": []}, {"detail": [3, {"loc": 5}]}])
async def test_error_bodies_of_any_shape_are_read(body: Any) -> None:
    assert read_refusal(400, body).status == 400


async def test_what_another_call_learnt_meanwhile_is_used() -> None:
    ladder = Ladder(Capabilities())
    used = ladder.now
    refusal = read_refusal(400, {"error": {"param": "temperature", "message": "unsupported"}})
    assert ladder.learn(used, refusal, {"temperature"}, 4096) == ladder.now != used
    assert ladder.learn(used, refusal, {"temperature"}, 4096) == ladder.now, "an old request"
    assert ladder.learn(ladder.now, refusal, {"max_tokens"}, 4096) is None, "not sent any more"
    assert [lesson.parameter for lesson in ladder.lessons] == ["temperature"]


ECHO = (
    "1 validation error: {'type': 'greater_than', 'loc': ('body', 'top_k'), 'msg': 'too small', "
    "'input': {'temperature': 0, 'max_tokens': 4096, 'response_format': {'type': 'json_schema'}}}"
)


@pytest.mark.parametrize(
    "error",
    [
        {"message": ECHO},
        {"message": "average temperature per month? is declined", "code": "content_filter"},
        {"message": "average temperature per month?", "param": "messages[1].content"},
        {"message": "No answer to: which max_tokens and temperature?"},
        {"message": "The model `temperature` does not exist"},
    ],
)
async def test_what_was_not_the_reason_is_not_learnt(rig: Rig, error: Any) -> None:
    async with served(lambda _: (400, {"error": error})) as endpoint:
        models = await rig.models(base_url=endpoint.url)
        model = models.for_agent("sql")
        with pytest.raises(BosError):
            await model.structured(ASK, Choice)
        assert models.learnt("sql") == []
        endpoint.rules.clear()
        endpoint.bodies.clear()
        await model.structured(ASK, Choice)
        assert {"temperature", "max_tokens", "response_format"} <= endpoint.bodies[0].keys()


@pytest.mark.parametrize(
    ("words", "without"),
    [
        ("Invalid schema for response_format 'Choice'", "response_format"),
        ("temperature must be between 0 and 1", "temperature"),
    ],
)
async def test_reason_in_one_request_does_not_affect_others(
    rig: Rig, words: str, without: str
) -> None:
    async with served(refuses(without, words=words)) as endpoint:
        models = await rig.models(base_url=endpoint.url)
        assert (await models.for_agent("code").structured(ASK, Choice)).value.tables == ["orders"]
        assert without not in endpoint.bodies[-1]
        assert models.learnt("sql") == []


async def test_the_length_of_a_prompt_is_not_taken_for_that_of_a_reply(rig: Rig) -> None:
    words = (
        "'max_tokens' is too large: {limit}. This model's maximum context length is 16384 tokens "
        "and your request has 14500 input tokens"
    )

    def rule(body: dict[str, Any]) -> tuple[int, Any] | None:
        said = words.format(limit=body["max_tokens"])
        full = body["max_tokens"] + 14_500 > 16_384 and len(body["messages"][0]["content"]) > 1000
        return (400, {"error": {"message": said}}) if full else None

    async with served(rule) as endpoint:
        model = await rig.model(base_url=endpoint.url)
        for _ in range(2):
            await model.text([user("x" * 30_000)])
            assert endpoint.bodies[-1]["max_tokens"] < 1900
        await model.text([user("hello")])
        assert endpoint.bodies[-1]["max_tokens"] == 4096


@pytest.mark.parametrize(
    "words",
    [
        "the valid range of max_tokens is [1, 2048]",
        "max_tokens should be between 1 and 2048",
        "max_tokens is too large: 4096. This model supports at most 2048 completion tokens",
    ],
)
async def test_a_reply_bound_too_large_is_lowered_for_good(rig: Rig, words: str) -> None:
    def rule(body: dict[str, Any]) -> tuple[int, Any] | None:
        error = {"message": words, "param": "max_tokens"}
        return (400, {"error": error}) if body["max_tokens"] > 2048 else None

    async with served(rule) as endpoint:
        model = await rig.model(base_url=endpoint.url)
        for _ in range(2):
            await model.text(ASK)
        assert [body["max_tokens"] for body in endpoint.bodies] == [4096, 2048, 2048]


async def test_profile_of_another_endpoint_teaches_nothing(rig: Rig) -> None:
    async with served(refuses("temperature")) as strict, served() as plain:
        profiles = {"eu": {"keys": ["k-123"], "base_url": strict.url}}
        models = await rig.models(base_url=plain.url, key_profiles=profiles)
        set_key_profile("eu")
        try:
            await models.for_agent("sql").text(ASK)
        finally:
            set_key_profile("")
        await models.for_agent("sql").text(ASK)
        assert len(strict.bodies) == 2
        assert "temperature" in plain.bodies[0]


async def test_model_that_always_reasons_gets_tokens_for_it(rig: Rig) -> None:
    async with served(refuses("reasoning_effort", words="'none' is not supported")) as endpoint:
        options = {"provider": "openai", "model": "gpt-5", "reasoning_effort": "none"}
        model = await rig.model(base_url=endpoint.url, **options)
        await model.text(ASK)
        assert endpoint.bodies[-1]["max_completion_tokens"] == 4096 + 8192
        assert model.reasons


async def test_halves_of_characters_are_sent_as_question_marks(rig: Rig) -> None:
    async with served() as endpoint:
        await (await rig.model(base_url=endpoint.url)).text([user("price \ud83d")])
        assert endpoint.bodies[0]["messages"][0]["content"] == "price ?"


async def test_whole_reply_read_as_stream_that_broke_off_is_no_reply(rig: Rig) -> None:
    async def broken(request: web.Request) -> web.Response:
        chunk = {"choices": [{"index": 0, "delta": {"content": "The revenue was 3 mill"}}]}
        text = f"data: {web.json_response(chunk).text}\n\n"
        return web.Response(text=text, content_type="text/event-stream")

    async with endpoint_of(broken) as url:
        with pytest.raises(ModelUnavailable, match="broke off"):
            await (await rig.model(provider="litellm", base_url=url)).text(ASK)


async def test_nested_without_end_is_no_reply(rig: Rig) -> None:
    async def deep(request: web.Request) -> web.Response:
        return web.Response(text="[" * 100_000, content_type="application/json")

    async with endpoint_of(deep) as url:
        with pytest.raises(ModelUnavailable):
            await (await rig.model(base_url=url)).text(ASK)


@pytest.mark.parametrize(
    ("provider", "model", "effort", "sent"),
    [
        ("openai", "gpt-6-luna", "none", True),
        ("openai", "gpt-6-luna", "low", False),
        ("openai", "gpt-4.1", "low", True),
        ("mistral", "mistral-large-4", "low", True),
    ],
)
async def test_temperature_goes_to_models_that_take_one(
    rig: Rig, provider: str, model: str, effort: str, sent: bool
) -> None:
    chosen = await rig.model(
        provider=provider, model=model, reasoning_effort=effort, base_url=rig.server.base_url
    )
    await chosen.text([user("hello")])
    assert ("temperature" in rig.server.requests[-1].body) is sent


async def test_models_that_think_get_room_for_it(rig: Rig) -> None:
    thinking = await rig.model(provider="openai", model="gpt-6-sol", reasoning_effort="low")
    await thinking.text([user("hello")], max_tokens=500)
    assert rig.server.requests[-1].body["max_completion_tokens"] == 500 + 8192
    assert thinking.reasons
    quick = await rig.model(provider="openai", model="gpt-6-sol", reasoning_effort="none")
    await quick.text([user("hello")], max_tokens=500)
    assert rig.server.requests[-1].body["max_completion_tokens"] == 500
    assert not quick.reasons


async def test_extra_parameters_go_with_every_call(rig: Rig) -> None:
    body = {"chat_template_kwargs": {"enable_thinking": False}, "temperature": 0.7}
    await (await rig.model(extra_body=body)).text([user("hello")])
    sent = rig.server.requests[-1].body
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}
    assert sent["temperature"] == 0.7
    assert sent["model"] == "scripted"


@pytest.mark.parametrize("provider", sorted(PROVIDERS.keys() - {"azure"}))
async def test_every_provider_answers_as_it_is_known(rig: Rig, provider: str) -> None:
    async with served() as endpoint:
        model = await rig.model(provider=provider, model="m", base_url=endpoint.url)
        assert (await model.structured(ASK, Choice)).value.tables == ["orders"]
        (sent,) = endpoint.bodies
        takes = provider_row(provider).takes
        asked = sent.get("response_format", {}).get("type", "prompt")
        assert asked == takes.structured
        assert takes.limit in sent
