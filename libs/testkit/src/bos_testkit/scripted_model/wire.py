"""The OpenAI wire shapes that the scripted model server speaks, as plain JSON values."""

from __future__ import annotations

import array
import base64
import hashlib
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

FinishReason = Literal["stop", "length", "content_filter"]

_TOKEN = re.compile(r"\w+|[^\w\s]")
_PIECE = re.compile(r"\s*\S+\s*")
# How a prompt itself asks for a reply of a form: a heading, and the form's name in parentheses.
_REPLY_FORM = re.compile(r"(?s)^### Reply\b(?:(?!^### ).){0,300}?\bJSON\b[^\n(]*\((\w+)\)", re.M)
# Nothing in a scripted conversation depends on the clock, so replies can be compared as bytes.
_CREATED = 1_767_225_600
_TOKENS_PER_MESSAGE = 3
_HASHES_PER_TOKEN = 4

DEFAULT_EMBEDDING_DIMENSIONS = 256
MAX_EMBEDDING_DIMENSIONS = 4096


@dataclass(frozen=True, slots=True)
class ChatCall:
    """What a chat request asks for."""

    model: str
    messages: Sequence[Mapping[str, Any]]
    schema: str | None
    """Name of the JSON schema asked for; None for text."""
    stream: bool
    include_usage: bool
    max_tokens: int | None

    @classmethod
    def parse(cls, body: Any) -> ChatCall:
        """Read a request body.

        Raises:
            ValueError: says what is wrong with it, as the real API does.
        """
        if not isinstance(body, dict) or not isinstance(body.get("model"), str):
            raise ValueError("you must provide a model parameter")
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise ValueError("'messages' must be a list of at least one message")
        for message in messages:
            if not isinstance(message, dict) or message.get("role") not in _ROLES:
                raise ValueError(f"every message needs a 'role' of {', '.join(_ROLES)}")
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        return cls(
            model=body["model"],
            messages=messages,
            schema=_schema_name(body.get("response_format")),
            stream=body.get("stream") is True,
            include_usage=(body.get("stream_options") or {}).get("include_usage") is True,
            max_tokens=limit if isinstance(limit, int) else None,
        )

    @property
    def prompt(self) -> str:
        """The text of all messages, one after another."""
        return "\n".join(_text(message.get("content")) for message in self.messages)

    @property
    def schema_in_prompt(self) -> str | None:
        """Name of the form in which the prompt itself asks for the reply, if it does."""
        asked: list[str] = _REPLY_FORM.findall(self.prompt)
        return asked[-1] if asked else None


@dataclass(frozen=True, slots=True)
class Error:
    """An HTTP error."""

    status: int
    body: Mapping[str, Any]


_ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says in one call."""

    content: str | None
    refusal: str | None = None
    finish_reason: FinishReason = "stop"

    @property
    def said(self) -> str:
        """The text, or that of the refusal."""
        return self.content or self.refusal or ""

    def limited(self, max_tokens: int | None) -> Answer:
        """This answer, cut where the token limit of the call ends it."""
        if max_tokens is None or self.content is None or count_tokens(self.content) <= max_tokens:
            return self
        end = [match.end() for match in _TOKEN.finditer(self.content)][max(0, max_tokens - 1)]
        return Answer(self.content[:end] if max_tokens > 0 else "", finish_reason="length")


def count_tokens(text: str) -> int:
    """Tokens of the scripted model: words and punctuation marks."""
    return sum(1 for _ in _TOKEN.finditer(text))


def count_prompt_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """Tokens of the messages of a request."""
    return sum(
        _TOKENS_PER_MESSAGE + count_tokens(_text(message.get("content"))) for message in messages
    )


def usage(call: ChatCall, answer: Answer) -> dict[str, int]:
    """The ``usage`` object of a reply."""
    prompt, completion = count_prompt_tokens(call.messages), count_tokens(answer.said)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def completion(call_id: str, call: ChatCall, answer: Answer) -> dict[str, Any]:
    """The body of a reply that is not streamed."""
    return {
        "id": call_id,
        "object": "chat.completion",
        "created": _CREATED,
        "model": call.model,
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": answer.content,
                    "refusal": answer.refusal,
                },
                "logprobs": None,
                "finish_reason": answer.finish_reason,
            }
        ],
        "usage": usage(call, answer),
    }


def chunks(call_id: str, call: ChatCall, answer: Answer) -> Iterator[dict[str, Any]]:
    """The chunks of a streamed reply, the usage chunk last if it was asked for."""

    def chunk(choices: list[dict[str, Any]], **extra: Any) -> dict[str, Any]:
        return {
            "id": call_id,
            "object": "chat.completion.chunk",
            "created": _CREATED,
            "model": call.model,
            "choices": choices,
            **extra,
        }

    def choice(delta: dict[str, Any], finish: str | None = None) -> list[dict[str, Any]]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]

    yield chunk(choice({"role": "assistant", "content": ""}))
    if answer.refusal is not None:
        yield chunk(choice({"refusal": answer.refusal}))
    for piece in _PIECE.findall(answer.content or ""):
        yield chunk(choice({"content": piece}))
    yield chunk(choice({}, answer.finish_reason))
    if call.include_usage:
        yield chunk([], usage=usage(call, answer))


def server_sent_event(data: Mapping[str, Any]) -> bytes:
    """One event of a streamed reply."""
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def error(message: str, *, kind: str, code: str | int, param: str | None = None) -> dict[str, Any]:
    """The body of an error reply."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def embeddings(body: Any) -> dict[str, Any]:
    """The reply to an embeddings request; equal texts have equal vectors in every process.

    Raises:
        ValueError: says what is wrong with the request.
    """
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise ValueError("you must provide a model parameter")
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise ValueError("'input' must be a string or a list of at least one string")
    dimensions = body.get("dimensions", DEFAULT_EMBEDDING_DIMENSIONS)
    if not isinstance(dimensions, int) or not 1 <= dimensions <= MAX_EMBEDDING_DIMENSIONS:
        raise ValueError(f"'dimensions' must be between 1 and {MAX_EMBEDDING_DIMENSIONS}")
    as_base64 = body.get("encoding_format") == "base64"
    vectors = [embed(text, dimensions) for text in texts]
    tokens = sum(count_tokens(text) for text in texts)
    return {
        "object": "list",
        "model": body["model"],
        "data": [
            {
                "object": "embedding",
                "index": index,
                "embedding": _as_base64(vector) if as_base64 else vector,
            }
            for index, vector in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def embed(text: str, dimensions: int = DEFAULT_EMBEDDING_DIMENSIONS) -> list[float]:
    """A unit vector made of the hashes of the words, so that texts sharing words are near."""
    vector = [0.0] * dimensions
    for token in _TOKEN.findall(text.casefold()) or [""]:
        digest = hashlib.blake2b(token.encode(), digest_size=5 * _HASHES_PER_TOKEN).digest()
        for start in range(0, len(digest), 5):
            index = int.from_bytes(digest[start : start + 4], "big") % dimensions
            vector[index] += 1.0 if digest[start + 4] & 1 else -1.0
    length = math.sqrt(sum(value * value for value in vector))
    if length == 0.0:  # the hashes cancelled each other out, which few dimensions allow
        return [1.0] + [0.0] * (dimensions - 1)
    return [value / length for value in vector]


def _as_base64(vector: Sequence[float]) -> str:
    floats = array.array("f", vector)
    if sys.byteorder == "big":
        floats.byteswap()
    return base64.b64encode(floats.tobytes()).decode()


def _schema_name(response_format: Any) -> str | None:
    if not isinstance(response_format, dict) or response_format.get("type") != "json_schema":
        return None
    schema = response_format.get("json_schema")
    if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
        raise ValueError("'response_format.json_schema' needs a 'name' and a 'schema'")
    return str(schema["name"])


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""
