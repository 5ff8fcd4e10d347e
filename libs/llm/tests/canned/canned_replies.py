"""Replies as real servers give them, each with what it must come to, and a server of them."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web
from pydantic import BaseModel, Field
from serving import endpoint_of

Failure = Literal[
    "output",  # what the model said cannot be used
    "refused",  # the model or a filter declined
    "foreign",  # not a reply of this API
    "unavailable",
    "rate_limited",
    "unknown_model",
]
NO_ERROR = -1


class Question(BaseModel):
    """A question back."""

    question: str
    options: list[str] = []


class TableChoice(BaseModel):
    """Which tables matter: what all canned replies are asked for."""

    tables: list[str] = Field(description="Tables that are needed")
    is_clear: bool
    clarifying_questions: list[Question] = []
    assumptions: list[str] = []
    note: str | None = None


VALUE: dict[str, Any] = {
    "tables": ["orders"],
    "is_clear": True,
    "clarifying_questions": [],
    "assumptions": [],
}
GOOD = json.dumps(VALUE)
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@dataclass(frozen=True)
class Expected:
    """What a call comes to; one of the first three is set."""

    value: Mapping[str, Any] | None = None
    """Of a structured call; fields left out have their defaults."""
    text: str | None = None
    """Of a stream."""
    failure: Failure | None = None
    reported: int | None = NO_ERROR
    """The status in the body of a reply with 200; None for an error without one."""
    shown: str = ""
    """What a stream shows before it fails."""


@dataclass(frozen=True)
class CannedReply:
    """One reply."""

    name: str
    expect: Expected
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """As JSON, or as it stands if it is bytes."""
    stream: bytes | None = None
    """To a call that asks for a stream; None: such a call gets ``body`` too."""
    max_requests: int = 1
    """How many requests one call may cost if every one gets this reply."""


def completion(message: Mapping[str, Any], finish: str | None = "stop", **extra: Any) -> Any:
    """The body of a whole reply."""
    said = {"role": "assistant", **message}
    return {
        "id": "x",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": said, "finish_reason": finish}],
        "usage": USAGE,
        **extra,
    }


def says(name: str, content: Any, finish: str = "stop", **value: Any) -> CannedReply:
    """A reply with ``content`` that means VALUE, changed by ``value``."""
    return CannedReply(
        name,
        Expected(value={**VALUE, **value}),
        body=completion({"content": content}, finish),
    )


def unusable(name: str, content: Any, finish: str = "stop", **message: Any) -> CannedReply:
    """A reply out of which no value can be read without guessing."""
    return CannedReply(
        name,
        Expected(failure="output"),
        body=completion({"content": content, **message}, finish),
        max_requests=2,
    )


def chunk(delta: Any, finish: str | None = None, **extra: Any) -> Any:
    """A chunk of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "x",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [choice],
        **extra,
    }


def text(content: Any) -> Any:
    """A chunk with text."""
    return chunk({"content": content})


END = chunk({}, "stop")
USAGE_CHUNK = {"id": "x", "model": "m", "choices": [], "usage": USAGE}


def events(*items: Any, done: bool = True, newline: str = "\n") -> bytes:
    """A stream; texts stand in it as they are."""
    parts = [
        item if isinstance(item, str) else f"data: {json.dumps(item)}\n\n"
        for item in (*items, *(["data: [DONE]\n\n"] if done else ()))
    ]
    return "".join(parts).replace("\n", newline).encode()


def shows(name: str, expected: str, *items: Any, **how: Any) -> CannedReply:
    """A stream that shows ``expected``."""
    return CannedReply(name, Expected(text=expected), stream=events(*items, **how))


@dataclass
class CannedServer:
    """A running endpoint; ``requests`` holds the bodies it got."""

    url: str
    requests: list[dict[str, Any]]


@asynccontextmanager
async def serve_canned(case: CannedReply, piece_bytes: int = 4096) -> AsyncIterator[CannedServer]:
    """An endpoint that answers every chat request with ``case``, streams in pieces."""
    requests: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        requests.append(asked)
        if not asked.get("stream") or case.stream is None:
            body = case.body if isinstance(case.body, bytes) else json.dumps(case.body).encode()
            return web.Response(
                body=body,
                status=case.status,
                headers={"Content-Type": "application/json", **case.headers},
            )
        headers = {"Content-Type": "text/event-stream", **case.headers}
        response = web.StreamResponse(status=case.status, headers=headers)
        await response.prepare(request)
        for start in range(0, len(case.stream), piece_bytes):
            await response.write(case.stream[start : start + piece_bytes])
        await response.write_eof()
        return response

    async with endpoint_of(answer) as url:
        yield CannedServer(url, requests)
