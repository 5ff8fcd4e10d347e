"""Reading the replies of the chat completions API, which arrive as untyped JSON.

Servers that call themselves compatible differ in what they leave out, what they add and where they
put it. What can be understood without guessing is read; the rest is a :class:`ForeignReply`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bos_llm.replies.wire_parts import (
    TokenCount,
    finish_reason,
    read_content,
    read_reasoning,
    read_tool_arguments,
    read_usage,
    string,
)

__all__ = [
    "ForeignReply",
    "Reply",
    "ReplyBuilder",
    "ReportedError",
    "TokenCount",
    "checked",
    "read_chunk",
    "read_completion",
]

_MAX_REASONING_CHARS = 200_000
_MAX_ERROR_CHARS = 2_000
_MAX_WORD_CHARS = 100
# Names that vendors give to what others say by a status.
_STATUS_OF = {
    "api_error": 500,
    "authentication_error": 401,
    "billing_error": 402,
    "deadline_exceeded": 504,
    "insufficient_quota": 429,
    "internal": 500,
    "internal_error": 500,
    "internal_server_error": 500,
    "invalid_api_key": 401,
    "invalid_argument": 400,
    "invalid_request_error": 400,
    "not_found": 404,
    "not_found_error": 404,
    "overloaded": 529,
    "overloaded_error": 529,
    "permission_denied": 403,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "resource_exhausted": 429,
    "server_error": 500,
    "service_unavailable": 503,
    "timeout_error": 504,
    "unauthenticated": 401,
    "unavailable": 503,
}


class ForeignReply(ValueError):
    """A reply that is not one of the chat completions API, such as a proxy's HTML page."""


class ReportedError(ValueError):
    """A failure that the endpoint reports in a reply whose HTTP status says success.

    What the endpoint wrote is in ``text``, to be searched for known words; it may hold keys or
    prompts and never becomes part of a message, nor of ``str()`` of this error.

    Args:
        status: The HTTP status that the failure stands for; None if nothing says which.
        code: The endpoint's name of the failure; "" for none.
        type: Its kind, as the endpoint calls it.
        param: The parameter of the request that it is about.
        text: The endpoint's own words, bounded.
    """

    def __init__(
        self, status: int | None, code: str = "", type: str = "", param: str = "", text: str = ""
    ) -> None:
        super().__init__("the endpoint reports an error in its reply")
        self.status = status
        self.code = code
        self.type = type
        self.param = param
        self.text = text


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply, or one chunk of a streamed one."""

    text: str = ""
    refusal: str = ""
    finish_reason: str | None = None
    """``stop``, ``length``, ``content_filter``, ``tool_calls``, or what the endpoint calls them;
    other reasons as they come."""
    model: str = ""
    """As the endpoint names it, often with a date appended."""
    tokens: TokenCount | None = None
    reasoning: str = ""
    """What the model thought, where the endpoint keeps it apart from the text."""
    tool_arguments: str = ""
    """Arguments of the first tool that the model called: some gateways ask for JSON this way."""
    blank: bool = False
    """Whether a whole reply came without anything that the model said."""


class ReplyBuilder:
    """The whole of a streamed reply, put together from its chunks."""

    def __init__(self, max_chars: int) -> None:
        self._left = max_chars
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._reasoning_left = min(max_chars, _MAX_REASONING_CHARS)
        self._last = Reply()
        self._chunks = 0

    @property
    def text(self) -> str:
        """What was said so far."""
        return "".join(self._texts)

    @property
    def is_blank(self) -> bool:
        """Whether there was no chunk at all."""
        return self._chunks == 0

    def add(self, chunk: Reply) -> str:
        """Append a chunk; returns its text.

        Raises:
            ForeignReply: the reply is longer than any real one.
        """
        self._left -= len(chunk.text) + len(chunk.refusal) + len(chunk.tool_arguments)
        if self._left < 0:
            raise ForeignReply("a stream without an end")
        self._chunks += 1
        if chunk.text:
            self._texts.append(chunk.text)
        if chunk.reasoning and self._reasoning_left > 0:
            # Thoughts are as long as the model likes; only the beginning is shown.
            self._reasoning.append(chunk.reasoning[: self._reasoning_left])
            self._reasoning_left -= len(chunk.reasoning)
        self._last = Reply(
            refusal=self._last.refusal + chunk.refusal,
            finish_reason=chunk.finish_reason or self._last.finish_reason,
            model=chunk.model or self._last.model,
            tokens=chunk.tokens or self._last.tokens,
            tool_arguments=self._last.tool_arguments + chunk.tool_arguments,
        )
        return chunk.text

    def add_all(self, chunks: Iterable[Reply]) -> str:
        """Append chunks; returns their text.

        Raises:
            ForeignReply: the reply is longer than any real one.
        """
        return "".join([self.add(chunk) for chunk in chunks])

    def reply(self) -> Reply:
        """The whole."""
        return replace(self._last, text=self.text, reasoning="".join(self._reasoning))


def read_completion(body: object) -> Reply:
    """A whole reply.

    Raises:
        ReportedError: the endpoint reports a failure in it.
        ForeignReply: it is something else.
    """
    body = checked(body)
    choices = body.get("choices", ...)
    if choices is not None and not isinstance(choices, list):
        raise ForeignReply("no list of choices")
    return _read(body, choices or [], whole=True)


def read_chunk(body: object) -> Reply:
    """One chunk of a streamed reply; usage, filters' notes and pings come without a choice.

    A whole reply is taken for a stream of one chunk: some proxies ignore that a stream was asked.

    Raises:
        ReportedError: the endpoint reports a failure in it.
        ForeignReply: it is something else.
    """
    if body is None:
        return Reply()
    body = checked(body)
    choices = body.get("choices")
    if choices is not None and not isinstance(choices, list):
        raise ForeignReply("no list of choices")
    return _read(body, choices or [], whole=False)


def checked(body: object) -> Mapping[str, Any]:
    """The JSON object of a reply.

    Raises:
        ReportedError: the endpoint reports a failure in it.
        ForeignReply: it is something else.
    """
    if isinstance(body, list) and body and isinstance(body[0], dict) and body[0].get("error"):
        body = body[0]
    if not isinstance(body, dict):
        raise ForeignReply("no JSON object")
    if body.get("error"):
        raise _reported(body["error"])
    if body.get("object") == "error":
        raise _reported(body)
    return body


def _read(body: Mapping[str, Any], choices: list[Any], *, whole: bool) -> Reply:
    part, other = ("message", "delta") if whole else ("delta", "message")
    choice = choices[0] if choices and isinstance(choices[0], dict) else {}
    reason = finish_reason(choice.get("finish_reason"))
    if reason == "error" or choice.get("error"):
        raise _reported(choice.get("error"))
    groq = body.get("x_groq")
    usages = (body, groq, choice)
    found = [read_usage(each.get("usage")) for each in usages if isinstance(each, dict)]
    tokens = next((tokens for tokens in found if tokens is not None), None)
    model = string(body.get("model"))
    message = choice.get(part)
    if not isinstance(message, dict):
        message = choice.get(other)
    if not isinstance(message, dict):
        text = string(choice.get("text"))  # as the older API of texts has it
        nothing = whole and not text
        return Reply(text, finish_reason=reason, model=model, tokens=tokens, blank=nothing)
    content = read_content(message.get("content"))
    return Reply(
        text=content.text,
        refusal=string(message.get("refusal")) or content.refusal,
        finish_reason=reason,
        model=model,
        tokens=tokens,
        reasoning=read_reasoning(message) or content.thinking,
        tool_arguments=read_tool_arguments(message),
    )


def _reported(error: Any) -> ReportedError:
    if not isinstance(error, dict):
        return ReportedError(None, text=string(error)[:_MAX_ERROR_CHARS])
    code, kind = _word(error.get("code")), _word(error.get("type"))
    names = (code, _word(error.get("status")), kind)
    statuses = (_status(name) for name in names)
    return ReportedError(
        next((status for status in statuses if status is not None), None),
        code,
        kind,
        _word(error.get("param")),
        string(error.get("message"))[:_MAX_ERROR_CHARS],
    )


def _status(name: str) -> int | None:
    if len(name) == 3 and name.isascii() and name.isdigit():
        return int(name) if 400 <= int(name) < 600 else None
    return _STATUS_OF.get(name.lower())


def _word(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**9:
        return str(value)
    return string(value)[:_MAX_WORD_CHARS]
