"""What sets an endpoint apart from OpenAI's, as its clients see it on the wire."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import pytest

from bos_testkit.scripted_model.faults import PROSE
from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory, scripted_model
from bos_testkit.scripted_model.quirks import (
    JSON_WORD,
    THINKING_TEMPERATURE,
    THOUGHTS,
    Envelope,
    Manner,
    OddChunk,
    Thinking,
    Wrapping,
)
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel
from bos_testkit.waiting import eventually

__all__ = ["scripted_model"]

GREETING = fixture("greeting", ["hello"], text="Good day to you.")
PLAN = fixture("plan", ["five"], schema="Plan", json={"steps": ["a", "b"]})
OTHER = fixture("other", ["five"], schema="Other", json={"n": 1})
PLAN_TEXT = '{"steps": ["a", "b"]}'
SCHEMA: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "Plan", "schema": {}}}
OBJECT: dict[str, Any] = {"type": "json_object"}
FORM = (
    "You plan.\n\n### Reply\nReply with one JSON object and nothing else, of this form (Plan):\n{}"
)


class Wire:
    """Sends what a client would send, and shows what comes back as it is."""

    def __init__(self, session: aiohttp.ClientSession, server: ScriptedModel) -> None:
        self._session = session
        self.server = server
        self.quirks = server.quirks

    async def post(self, text: str = "five", **body: Any) -> tuple[int, Any]:
        """Status and JSON of a reply."""
        system = body.pop("system", "You plan.")
        messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        url = f"{self.server.base_url}/chat/completions"
        request = {"model": "any", "messages": messages, **body}
        async with self._session.post(url, json=request) as reply:
            if reply.content_type == "text/event-stream":
                return reply.status, await reply.text()
            return reply.status, await reply.json()

    async def message(self, text: str = "five", **body: Any) -> dict[str, Any]:
        """The message of a reply that is one."""
        status, found = await self.post(text, **body)
        assert status == 200
        message: dict[str, Any] = found["choices"][0]["message"]
        return message

    async def stream(self, text: str = "hello", **body: Any) -> list[Any]:
        """What the events of a stream hold; comments as they are."""
        status, found = await self.post(text, stream=True, **body)
        assert status == 200
        lines = [line for line in found.split("\n") if line]
        assert lines.pop() == "data: [DONE]"
        return [
            json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else line
            for line in lines
        ]


@pytest.fixture
async def wire(scripted_model: ScriptedModelFactory) -> AsyncIterator[Wire]:
    server = await scripted_model(GREETING, PLAN, OTHER)
    async with aiohttp.ClientSession() as session:
        yield Wire(session, server)


def written(events: Sequence[Any]) -> str:
    deltas = [
        choice.get("delta") or {}
        for event in events
        if isinstance(event, dict)
        for choice in event.get("choices") or ()
    ]
    return "".join(delta.get("content") or "" for delta in deltas)


@pytest.mark.parametrize(
    ("name", "manner", "sent", "accepted"),
    [
        ("temperature", "openai", {"temperature": 0}, {}),
        ("max_tokens", "openai", {"max_tokens": 9}, {"max_completion_tokens": 9}),
        ("max_completion_tokens", "forbidden", {"max_completion_tokens": 9}, {"max_tokens": 9}),
        ("json_schema", "plain", {"response_format": SCHEMA}, {"response_format": OBJECT}),
        ("json_object", "string", {"response_format": OBJECT}, {"response_format": SCHEMA}),
        (JSON_WORD, "openai", {"response_format": OBJECT}, {"response_format": SCHEMA}),
        (
            THINKING_TEMPERATURE,
            "openai",
            {"temperature": 0, "reasoning_effort": "low"},
            {"temperature": 0, "reasoning_effort": "none"},
        ),
        ("reasoning_effort", "openai", {"reasoning_effort": "none"}, {"reasoning_effort": None}),
    ],
)
async def test_a_parameter_is_refused_when_it_is_sent(
    wire: Wire, name: str, manner: Manner, sent: dict[str, Any], accepted: dict[str, Any]
) -> None:
    wire.quirks.refuses[name] = manner
    status, body = await wire.post(**sent)
    assert status == (422 if manner == "forbidden" else 400)
    assert (await wire.post(**accepted))[0] == 200
    param = "response_format" if "json" in name else name.partition(" ")[0]
    text = json.dumps(body)
    if manner == "openai":
        assert (body["error"]["param"], body["error"]["code"]) == (param, "unsupported_parameter")
    elif manner == "forbidden":
        assert body["detail"][0]["loc"] == ["body", param]
    elif manner == "plain":
        assert (body["error"]["param"], body["error"]["code"]) == (None, 400)
        assert name in text
    else:
        assert name in body["error"]
    recorded = wire.server.requests[-2]
    assert (recorded.status, recorded.reply, recorded.reply_tokens) == (status, "", 0)


async def test_the_word_json_makes_an_object_acceptable(wire: Wire) -> None:
    wire.quirks.refuses[JSON_WORD] = "openai"
    assert (await wire.post("five", response_format=OBJECT))[0] == 400
    assert (await wire.post("five, as Json", response_format=OBJECT))[0] == 200


async def test_a_form_in_the_prompt_is_recognised_without_any_format(wire: Wire) -> None:
    assert (await wire.message(system=FORM))["content"] == PLAN_TEXT
    assert wire.server.requests[-1].schema == "Plan"
    quoted = FORM.replace("### Reply", "Reply")
    assert (await wire.message("hello five", system=quoted))["content"] == "Good day to you."
    assert wire.server.requests[-1].schema is None


async def test_the_format_in_the_request_counts_before_the_prompt(wire: Wire) -> None:
    other = {"type": "json_schema", "json_schema": {"name": "Other", "schema": {}}}
    assert (await wire.message(system=FORM, response_format=other))["content"] == '{"n": 1}'
    wire.quirks.ignores_response_format = True
    assert (await wire.message(system=FORM, response_format=other))["content"] == PLAN_TEXT


async def test_an_ignored_format_is_answered_in_prose(wire: Wire) -> None:
    wire.quirks.ignores_response_format = True
    assert (await wire.message(response_format=SCHEMA))["content"] == PROSE
    wire.quirks.ignores_response_format = False
    assert (await wire.message(response_format=SCHEMA))["content"] == PLAN_TEXT


@pytest.mark.parametrize("where", ["content", "unclosed", "reasoning_content", "reasoning"])
async def test_thoughts_are_shown(wire: Wire, where: Thinking) -> None:
    wire.quirks.thinks = where
    message = await wire.message(response_format=SCHEMA)
    events = await wire.stream()
    if where == "content":
        assert message["content"] == f"<think>\n{THOUGHTS}\n</think>\n\n{PLAN_TEXT}"
        assert written(events) == f"<think>\n{THOUGHTS}\n</think>\n\nGood day to you."
    elif where == "unclosed":
        assert message["content"] == written(events) == f"<think>\n{THOUGHTS}"
    else:
        assert (message[where], message["content"]) == (THOUGHTS, PLAN_TEXT)
        assert events[0]["choices"][0]["delta"] == {where: THOUGHTS}
        assert written(events) == "Good day to you."


async def test_a_limit_cuts_thoughts_as_well(wire: Wire) -> None:
    wire.quirks.thinks = "content"
    status, body = await wire.post(response_format=SCHEMA, max_tokens=6)
    assert status == 200
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["choices"][0]["message"]["content"] == "<think>\nFirst I look"


async def test_content_comes_in_parts(wire: Wire) -> None:
    wire.quirks.in_parts = True
    thought, said = (await wire.message(response_format=SCHEMA))["content"]
    assert thought["type"] == "thinking"
    assert said == {"type": "text", "text": PLAN_TEXT}
    events = await wire.stream()
    parts = [e["choices"][0]["delta"]["content"] for e in events[1:-1]]
    assert "".join(part["text"] for (part,) in parts) == "Good day to you."


@pytest.mark.parametrize(
    ("wraps", "content"),
    [
        ("fence", f"```json\n{PLAN_TEXT}\n```"),
        ("list", f"[{PLAN_TEXT}]"),
        ("named", f'{{"Plan": {PLAN_TEXT}}}'),
        ("end_marker", f"{PLAN_TEXT}<|im_end|>"),
    ],
)
async def test_json_is_wrapped_and_text_is_not(wire: Wire, wraps: Wrapping, content: str) -> None:
    wire.quirks.wraps = wraps
    assert (await wire.message(response_format=SCHEMA))["content"] == content
    assert (await wire.message("hello"))["content"] == "Good day to you."


@pytest.mark.parametrize("wraps", ["prose", "prose_and_fence"])
async def test_prose_stands_around_json(wire: Wire, wraps: Wrapping) -> None:
    wire.quirks.wraps = wraps
    content = (await wire.message(response_format=SCHEMA))["content"]
    before, _, after = content.partition(PLAN_TEXT)
    assert before.startswith("Sure")
    assert "more" in after
    assert ("```" in after) == (wraps == "prose_and_fence")


async def test_json_comes_as_arguments_of_a_tool(wire: Wire) -> None:
    wire.quirks.calls_tool = True
    _, body = await wire.post(response_format=SCHEMA)
    (choice,) = body["choices"]
    function = choice["message"]["tool_calls"][0]["function"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
    assert function == {"name": "Plan", "arguments": PLAN_TEXT}
    assert "tool_calls" not in await wire.message("hello")


@pytest.mark.parametrize(
    ("envelope", "shown"),
    [
        ("error", {"error": {"message": "The provider returned an error", "code": 502}}),
        ("no_choices", []),
        ("null_choices", None),
        ("finish_error", "error"),
    ],
)
async def test_200_is_no_reply(wire: Wire, envelope: Envelope, shown: Any) -> None:
    wire.quirks.envelope = envelope
    status, body = await wire.post(response_format=SCHEMA)
    assert status == 200
    if envelope == "error":
        assert body == shown
        assert await wire.stream() == [{"error": {"message": "The provider broke off"}}]
    elif envelope == "finish_error":
        assert body["choices"][0]["finish_reason"] == shown
        assert body["choices"][0]["message"]["content"] == PLAN_TEXT[:5]
    else:
        assert body["choices"] == shown
        assert body["usage"]["prompt_tokens"] > 0


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("no_delta", lambda event: "delta" not in event["choices"][0]),
        ("no_choices", lambda event: "choices" not in event),
        ("ping", lambda event: event == {"type": "ping"}),
        ("comment", lambda event: event == ": still working"),
    ],
)
async def test_odd_chunks_stand_between_and_behind_the_others(
    wire: Wire, kind: OddChunk, shown: Any
) -> None:
    plain = await wire.stream()
    wire.quirks.odd_chunks = (kind,)
    odd = await wire.stream()
    assert written(odd) == written(plain) == "Good day to you."
    assert len(odd) == len(plain) + 2
    assert shown(odd[1])
    assert shown(odd[-1])


async def test_a_stream_is_answered_as_a_whole(wire: Wire) -> None:
    wire.quirks.whole_for_stream = True
    status, body = await wire.post("hello", stream=True)
    assert status == 200
    assert body["choices"][0]["message"]["content"] == "Good day to you."


async def test_prompt_and_limit_have_to_fit_the_window(wire: Wire) -> None:
    wire.quirks.window_tokens = 20
    assert (await wire.post())[0] == 200
    assert (await wire.post(max_tokens=9))[0] == 200
    status, body = await wire.post(max_tokens=12)
    assert (status, body["error"]["code"]) == (400, 400)
    assert "20 tokens" in body["error"]["message"]
    assert (await wire.post("five " * 30))[0] == 400


async def test_a_model_loads_after_a_while_and_a_broken_one_never(wire: Wire) -> None:
    wire.quirks.loading = 2
    statuses = [(await wire.post("hello"))[0] for _ in range(3)]
    assert statuses == [503, 503, 200]
    for status in (402, 500):
        wire.quirks.always = status
        assert [(await wire.post("hello"))[0] for _ in range(3)] == [status] * 3


async def test_what_hangs_ends_with_its_client_alone(wire: Wire) -> None:
    wire.quirks.hangs = True
    calls = [asyncio.create_task(wire.post(stream=stream)) for stream in (False, True)]
    await eventually(lambda: wire.server.in_flight == 2)
    assert wire.server.abandoned == 0
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await eventually(lambda: (wire.server.abandoned, wire.server.in_flight) == (2, 0))
    wire.quirks.hangs = False
    assert (await wire.message("hello"))["content"] == "Good day to you."


async def test_a_stream_hangs_after_it_has_begun(wire: Wire) -> None:
    wire.quirks.hangs, wire.quirks.hangs_after_chunks = True, 2
    url, body = f"{wire.server.base_url}/chat/completions", {"model": "any", "stream": True}
    messages = [{"role": "user", "content": "hello"}]
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json={**body, "messages": messages}) as reply,
    ):
        shown = [await reply.content.readuntil(b"\n\n") for _ in range(2)]
        assert b"Good " in shown[1]
        assert (wire.server.in_flight, wire.server.abandoned) == (1, 0)
    await eventually(lambda: (wire.server.abandoned, wire.server.in_flight) == (1, 0))


async def test_replies_are_recorded_with_their_tokens(wire: Wire) -> None:
    await wire.post("hello")
    wire.quirks.wraps = "list"
    await wire.post(response_format=SCHEMA)
    text, structured = wire.server.requests
    assert (text.reply, text.reply_tokens, text.prompt_tokens) == ("Good day to you.", 5, 10)
    assert (structured.reply, structured.status) == (f"[{PLAN_TEXT}]", 200)


async def test_as_many_requests_are_kept_as_wanted(wire: Wire) -> None:
    assert wire.server.requests.maxlen == 200
    async with ScriptedModel([GREETING], keep=2) as server, aiohttp.ClientSession() as session:
        for text in ("hello one", "hello two", "hello three"):
            await Wire(session, server).post(text)
        assert [call.messages[-1]["content"] for call in server.requests] == [
            "hello two",
            "hello three",
        ]
