"""What sets an endpoint apart from OpenAI's, as its clients see it on the wire."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from bos_testkit.scripted_model.faults import PROSE
from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory, scripted_model
from bos_testkit.scripted_model.quirks import (
    JSON_WORD,
    THINKING_TEMPERATURE,
    THOUGHTS,
    Manner,
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


@pytest.mark.parametrize(
    ("name", "manner", "sent", "accepted"),
    [
        ("temperature", "openai", {"temperature": 0}, {}),
        ("max_completion_tokens", "forbidden", {"max_completion_tokens": 9}, {"max_tokens": 9}),
        ("json_schema", "plain", {"response_format": SCHEMA}, {"response_format": OBJECT}),
        (JSON_WORD, "openai", {"response_format": OBJECT}, {"response_format": SCHEMA}),
        (
            THINKING_TEMPERATURE,
            "openai",
            {"temperature": 0, "reasoning_effort": "low"},
            {"temperature": 0, "reasoning_effort": "none"},
        ),
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
    if manner == "openai":
        assert (body["error"]["param"], body["error"]["code"]) == (param, "unsupported_parameter")
    elif manner == "forbidden":
        assert body["detail"][0]["loc"] == ["body", param]
    else:
        assert (body["error"]["param"], body["error"]["code"]) == (None, 400)
        assert name in json.dumps(body)
    recorded = wire.server.requests[-2]
    assert (recorded.status, recorded.reply, recorded.reply_tokens) == (status, "", 0)


async def test_a_form_in_the_prompt_is_recognised_without_any_format(wire: Wire) -> None:
    assert (await wire.message(system=FORM))["content"] == PLAN_TEXT
    assert wire.server.requests[-1].schema == "Plan"
    quoted = FORM.replace("### Reply", "Reply")
    assert (await wire.message("hello five", system=quoted))["content"] == "Good day to you."
    assert wire.server.requests[-1].schema is None


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


def said(body: Any) -> Any:
    return body["choices"][0]["message"]["content"]


CHANGED: list[tuple[str, Any, Callable[[Any], bool]]] = [
    ("ignores_response_format", True, lambda body: said(body) == PROSE),
    (
        "thinks",
        "content",
        lambda body: said(body) == f"<think>\n{THOUGHTS}\n</think>\n\n{PLAN_TEXT}",
    ),
    ("thinks", "unclosed", lambda body: said(body) == f"<think>\n{THOUGHTS}"),
    ("thinks", "reasoning_content", lambda body: THOUGHTS in json.dumps(body)),
    ("in_parts", True, lambda body: said(body)[1] == {"type": "text", "text": PLAN_TEXT}),
    ("wraps", "fence", lambda body: said(body) == f"```json\n{PLAN_TEXT}\n```"),
    ("wraps", "list", lambda body: said(body) == f"[{PLAN_TEXT}]"),
    ("wraps", "named", lambda body: said(body) == f'{{"Plan": {PLAN_TEXT}}}'),
    ("wraps", "end_marker", lambda body: said(body) == f"{PLAN_TEXT}<|im_end|>"),
    ("wraps", "prose_and_fence", lambda body: "```" in said(body) and PLAN_TEXT in said(body)),
    ("calls_tool", True, lambda body: body["choices"][0]["finish_reason"] == "tool_calls"),
    ("envelope", "error", lambda body: body["error"]["code"] == 502),
    ("envelope", "no_choices", lambda body: body["choices"] == []),
    ("envelope", "null_choices", lambda body: body["choices"] is None),
    ("envelope", "finish_error", lambda body: body["choices"][0]["finish_reason"] == "error"),
]


@pytest.mark.parametrize(
    ("quirk", "value", "shows"), CHANGED, ids=[str(row[:2]) for row in CHANGED]
)
async def test_quirk_changes_a_reply(wire: Wire, quirk: str, value: Any, shows: Any) -> None:
    _, plain = await wire.post(response_format=SCHEMA)
    assert said(plain) == PLAN_TEXT
    setattr(wire.quirks, quirk, value)
    status, body = await wire.post(response_format=SCHEMA)
    assert status == 200
    assert shows(body)


STREAMED: list[tuple[str, Any, Callable[[list[Any]], bool]]] = [
    ("thinks", "reasoning_content", lambda events: THOUGHTS in str(events[0])),
    ("in_parts", True, lambda events: isinstance(delta(events[1])["content"], list)),
    ("envelope", "error", lambda events: "error" in events[0]),
    ("odd_chunks", ("no_delta",), lambda events: "delta" not in events[1]["choices"][0]),
    ("odd_chunks", ("no_choices",), lambda events: "choices" not in events[1]),
    ("odd_chunks", ("ping",), lambda events: events[1] == events[-1] == {"type": "ping"}),
    ("odd_chunks", ("comment",), lambda events: events[-1] == ": still working"),
]


def delta(event: Any) -> Any:
    return event["choices"][0]["delta"]


@pytest.mark.parametrize(
    ("quirk", "value", "shows"), STREAMED, ids=[str(row[:2]) for row in STREAMED]
)
async def test_quirk_changes_a_stream(wire: Wire, quirk: str, value: Any, shows: Any) -> None:
    setattr(wire.quirks, quirk, value)
    assert shows(await wire.stream())


async def test_stream_is_answered_as_a_whole(wire: Wire) -> None:
    wire.quirks.whole_for_stream = True
    assert said((await wire.post("hello", stream=True))[1]) == "Good day to you."
