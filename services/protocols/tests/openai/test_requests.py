"""Messages taken apart, streams that wait, and bounds."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.requests import Request

from bos_errors import Internal, InvalidArgument, ResourceExhausted
from bos_protocols.openai.errors import error_reply
from bos_protocols.openai.messages import MAX_MESSAGES, talk_of
from bos_protocols.openai.requests import MAX_BODY_BYTES, ChatRequest, ResponsesRequest, parsed
from bos_protocols.openai.sse import HEARTBEAT, with_heartbeat


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_the_question_is_what_the_user_said_last() -> None:
    talk = talk_of(
        [
            {"role": "system", "content": "Be brief."},
            user("Hello"),
            {"role": "assistant", "content": "Hello."},
            user("Who?"),
            {"role": "developer", "content": "In English."},
            {"type": "reasoning", "summary": []},
            user([{"type": "input_text", "text": "And when?"}]),
        ],
        "input",
        "As agreed.",
    )
    assert talk.question == "Who?\n\nAnd when?"
    assert talk.system_prompt == "As agreed.\n\nBe brief.\n\nIn English."
    assert talk.replied_to == "Hello."
    assert talk.questions == {"Hello"}
    roles = [each["role"] for each in talk.context()["earlier_messages"]]
    assert roles == ["user", "assistant"]


def test_what_is_passed_on_of_earlier_messages_is_bounded() -> None:
    talk = talk_of(
        [*[user("x" * 10_000), {"role": "assistant", "content": "y"}] * 50, user("z")], "m"
    )
    earlier = talk.context()["earlier_messages"]
    assert len(earlier) == 20
    assert max(len(each["text"]) for each in earlier) == 4_000


@pytest.mark.parametrize(
    ("field", "items"),
    [
        ("m", [user("x")] * (MAX_MESSAGES + 1)),
        ("m", [user(" ")]),
        ("m[0].content", [user(7)]),
        ("m[0].content[0]", [user(["x"])]),
        ("m[0].content[0].text", [user([{"type": "text", "text": 7}])]),
        ("m[0].content[1]", [user([{"type": "text", "text": "x"}, {"type": "input_file"}])]),
        ("m[1].type", [user("x"), {"type": "function_call_output", "output": "yes"}]),
        ("m[0].role", [{"content": "x"}]),
    ],
)
def test_what_is_not_understood_is_named(field: str, items: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidArgument) as refused:
        talk_of(items, "m")
    assert refused.value.violations[0].field == field


def request_with(body: bytes) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("body", b"{"),
        ("body", b"\xff"),
        ("messages", b"{}"),
        ("messages", b'{"messages": []}'),
        ("stream", b'{"messages": [{}], "stream": "yes"}'),
        ("metadata.a", b'{"messages": [{}], "metadata": {"a": 1}}'),
        ("n", b'{"messages": [{}], "n": 2}'),
        ("logprobs", b'{"messages": [{}], "logprobs": true}'),
        ("response_format", b'{"messages": [{}], "response_format": {"type": "json_object"}}'),
        ("tool_choice", b'{"messages": [{}], "tools": [], "tool_choice": "required"}'),
        ("modalities", b'{"messages": [{}], "modalities": ["text", "audio"]}'),
        ("stop", b'{"messages": [{}], "stop": "\\n"}'),
    ],
)
async def test_body_that_is_wrong_or_asks_for_more_names_its_field(field: str, body: bytes) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await parsed(ChatRequest, request_with(body))
    assert refused.value.violations[0].field == field


async def test_what_does_not_change_the_answer_is_ignored() -> None:
    body = b'{"messages": [{}], "temperature": 0.1, "n": 1, "max_tokens": 5, "tool_choice": "auto"}'
    assert (await parsed(ChatRequest, request_with(body))).messages


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("text.format", b'{"input": "x", "text": {"format": {"type": "json_schema"}}}'),
        ("prompt", b'{"input": "x", "prompt": {"id": "p"}}'),
        ("tool_choice", b'{"input": "x", "tool_choice": {"type": "function", "name": "f"}}'),
        ("conversation", b'{"input": "x", "conversation": "c", "previous_response_id": "r"}'),
    ],
)
async def test_responses_refuse_what_bos_does_not_offer(field: str, body: bytes) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await parsed(ResponsesRequest, request_with(body))
    assert refused.value.violations[0].field == field


async def test_a_conversation_has_either_form() -> None:
    for form in (b'"c"', b'{"id": "c"}'):
        body = b'{"input": "x", "conversation": ' + form + b"}"
        assert (await parsed(ResponsesRequest, request_with(body))).conversation_id == "c"


async def test_a_body_that_is_too_long_is_refused() -> None:
    with pytest.raises(ResourceExhausted, match="bytes"):
        await parsed(ChatRequest, request_with(b" " * (MAX_BODY_BYTES + 1)))


async def test_a_silent_stream_has_comments_and_loses_nothing() -> None:
    going_on = asyncio.Event()
    closed = asyncio.Event()

    async def events() -> AsyncGenerator[bytes, None]:
        try:
            yield b"first"
            await going_on.wait()
            yield b"last"
        finally:
            closed.set()

    stream = with_heartbeat(events(), 0.01)
    assert await anext(stream) == b"first"
    assert [await anext(stream) for _ in range(3)] == [HEARTBEAT] * 3
    going_on.set()
    rest = [event async for event in stream if event != HEARTBEAT]
    assert rest == [b"last"]
    assert closed.is_set()


async def test_leaving_a_stream_that_waits_ends_what_it_reads() -> None:
    closed = asyncio.Event()

    async def events() -> AsyncGenerator[bytes, None]:
        try:
            await asyncio.Event().wait()
            yield b""
        finally:
            closed.set()

    stream = with_heartbeat(events(), 0.01)
    assert await anext(stream) == HEARTBEAT
    await stream.aclose()
    assert closed.is_set()


def test_errors_say_when_to_come_back_and_nothing_internal() -> None:
    full = error_reply(ResourceExhausted("Full.", reason="REPLICA_FULL", retry_after_s=1.2))
    assert (full.status_code, full.headers["retry-after"]) == (429, "2")
    internal = error_reply(Internal("a secret"))
    assert internal.status_code == 500
