"""Ways in which real model endpoints differ from OpenAI's, shown by the scripted model.

Unlike a fault (:mod:`bos_testkit.scripted_model.faults`), which passes, a quirk is how the
endpoint is,
until a test changes it::

    server.quirks.refuses["temperature"] = "openai"
    server.quirks.thinks = "content"
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from bos_testkit.scripted_model import wire

Manner = Literal["openai", "forbidden", "plain", "string"]
"""How a refusal is worded: with `param` and `code`; as a list of fields (422); in a message alone;
as a bare string."""
Thinking = Literal["", "content", "unclosed", "reasoning_content", "reasoning"]
Wrapping = Literal["", "fence", "prose", "prose_and_fence", "list", "named", "end_marker"]
Envelope = Literal["", "error", "no_choices", "null_choices", "finish_error"]
OddChunk = Literal["no_delta", "null_delta", "null_choices", "no_choices", "ping", "comment"]

THOUGHTS: Final = "First I look at what is asked. Is {this} the form they want?"
JSON_WORD: Final = "json_object without the word json"
"""As a name in ``refuses``: ``json_object`` unless some message says JSON."""
THINKING_TEMPERATURE: Final = "temperature while it thinks"
"""As a name in ``refuses``: ``temperature`` unless ``reasoning_effort`` is none."""
_FORMATS: Final = ("json_schema", "json_object")
_PARAMETERS: Final = {
    **dict.fromkeys((*_FORMATS, JSON_WORD), "response_format"),
    THINKING_TEMPERATURE: "temperature",
}
_STATUS_TEXTS: Final = {
    402: "Your balance does not cover this request",
    429: "Too many requests for this key",
    500: "The server had an error while processing the request",
    503: "The model is still being loaded",
    529: "All workers are busy",
}


@dataclass(slots=True)
class Quirks:
    """How the endpoint differs from OpenAI's; by default in nothing."""

    refuses: dict[str, Manner] = field(default_factory=dict)
    """Parameters that end in an error when they are sent, and how it is worded: any name of the
    body, ``json_schema`` and ``json_object`` as kinds of ``response_format``, `JSON_WORD`, or
    `THINKING_TEMPERATURE`."""
    ignores_response_format: bool = False
    """Answers in prose, unless the prompt itself describes the form of the reply."""
    thinks: Thinking = ""
    """Where thoughts are shown before the answer. ``unclosed`` is content that is nothing else."""
    in_parts: bool = False
    """The content is a list of parts, the first of which holds thoughts."""
    wraps: Wrapping = ""
    """What stands around JSON."""
    calls_tool: bool = False
    """JSON comes as arguments of a call of a tool named like the schema; the content is null."""
    envelope: Envelope = ""
    """What HTTP 200 holds in place of a reply; a stream shows an ``error`` alone."""
    odd_chunks: tuple[OddChunk, ...] = ()
    """Mixed into every stream, one after each of its first chunks, the last also at its end."""
    whole_for_stream: bool = False
    """A stream is asked for, and one JSON document comes."""
    window_tokens: int | None = None
    """Refuses prompts that, with the reply's limit, are longer."""
    always: int = 0
    """HTTP status of every reply, e.g. 500 or 402; 0: as usual."""
    loading: int = 0
    """So many requests more get 503 because the model is not loaded yet."""
    hangs: bool = False
    """Never says any more; only the client ends the call."""
    hangs_after_chunks: int = 0
    """What a stream still shows before it hangs."""

    def schema_of(self, call: wire.ChatCall) -> str | None:
        """Name of the schema that the model knows it has to fill in; None: it writes text."""
        if call.schema is None or self.ignores_response_format:
            return call.schema_in_prompt
        return call.schema

    def refusal(self, body: Mapping[str, Any], call: wire.ChatCall) -> wire.Error | None:
        """The error that this request gets instead of an answer, if any."""
        if self.loading > 0:
            self.loading -= 1
            return wire.Error(503, wire.error("Loading model", kind="unavailable_error", code=503))
        if self.always:
            return _failed(self.always, "server_error" if self.always >= 500 else "api_error")
        for name, manner in self.refuses.items():
            if _is_sent(name, body, call):
                return _refused(name, manner)
        return self._overflow(call)

    def _overflow(self, call: wire.ChatCall) -> wire.Error | None:
        if self.window_tokens is None:
            return None
        prompt = wire.count_prompt_tokens(call.messages)
        if prompt + (call.max_tokens or 0) <= self.window_tokens:
            return None
        message = (
            f"This model's context holds {self.window_tokens} tokens, and the request asks for "
            f"{prompt} of input and {call.max_tokens or 0} of output"
        )
        return wire.Error(400, wire.error(message, kind="BadRequestError", code=400))

    def say(self, answer: wire.Answer, schema: str | None) -> wire.Answer:
        """What the model writes: the answer with thoughts and wrapping, as text."""
        text = answer.content
        if text is None:
            return answer
        if schema is not None:
            text = _wrapped(text, self.wraps, schema)
        if self.thinks == "content":
            text = f"<think>\n{THOUGHTS}\n</think>\n\n{text}"
        elif self.thinks == "unclosed":
            text = f"<think>\n{THOUGHTS}"
        return wire.Answer(text, finish_reason=answer.finish_reason)

    def completion(self, body: dict[str, Any], schema: str | None) -> dict[str, Any]:
        """The reply that is not streamed, in the shape of this endpoint."""
        if self.envelope == "error":
            return {"error": {"message": "The provider returned an error", "code": 502}}
        if self.envelope in ("no_choices", "null_choices"):
            return {**body, "choices": [] if self.envelope == "no_choices" else None}
        choice = dict(body["choices"][0])
        message = choice["message"] = dict(choice["message"])
        if self.envelope == "finish_error":
            choice["finish_reason"] = "error"
            choice["error"] = {"code": 502, "message": "The provider broke off"}
            message["content"] = (message["content"] or "")[:5]
        elif self.calls_tool and schema is not None and message["content"] is not None:
            call = {"name": schema, "arguments": message["content"]}
            message["tool_calls"] = [{"id": "call-1", "type": "function", "function": call}]
            message["content"] = None
            choice["finish_reason"] = "tool_calls"
        else:
            self._think_aside(message)
            if self.in_parts and message["content"] is not None:
                message["content"] = _parts(message["content"])
        return {**body, "choices": [choice]}

    def events(self, chunks: Iterator[dict[str, Any]]) -> Iterator[bytes]:
        """The server-sent events of a streamed reply, in the shape of this endpoint."""
        if self.envelope == "error":
            yield wire.server_sent_event({"error": {"message": "The provider broke off"}})
            return
        if self.thinks in ("reasoning_content", "reasoning"):
            yield wire.server_sent_event(_chunk({"delta": {self.thinks: THOUGHTS}}))
        odd = list(self.odd_chunks)
        for chunk in chunks:
            yield wire.server_sent_event(self._in_parts(chunk))
            if odd:
                yield _odd(odd.pop(0))
        for left in odd or self.odd_chunks[-1:]:
            yield _odd(left)

    def _in_parts(self, chunk: dict[str, Any]) -> dict[str, Any]:
        if not self.in_parts or not chunk["choices"]:
            return chunk
        (choice,) = chunk["choices"]
        if not choice["delta"].get("content"):
            return chunk
        parts = [{"type": "text", "text": choice["delta"]["content"]}]
        return {**chunk, "choices": [{**choice, "delta": {"content": parts}}]}

    def _think_aside(self, message: dict[str, Any]) -> None:
        if self.thinks in ("reasoning_content", "reasoning"):
            message[self.thinks] = THOUGHTS


def _is_sent(name: str, body: Mapping[str, Any], call: wire.ChatCall) -> bool:
    form = body.get("response_format")
    kind = form.get("type") if isinstance(form, dict) else None
    if name == JSON_WORD:
        return kind == "json_object" and "json" not in call.prompt.casefold()
    if name == THINKING_TEMPERATURE:
        return body.get("temperature") is not None and body.get("reasoning_effort") != "none"
    return kind == name if name in _FORMATS else body.get(name) is not None


def _refused(name: str, manner: Manner) -> wire.Error:
    param = _PARAMETERS.get(name, name)
    if manner == "forbidden":
        problem = {"type": "extra_forbidden", "loc": ["body", param], "msg": "Not permitted"}
        return wire.Error(422, {"detail": [problem]})
    if name == JSON_WORD:
        text = "'messages' must contain the word 'json' to use 'response_format' of this type."
    elif name in _FORMATS:
        text = f"This response_format type is unavailable: '{name}'."
    else:
        text = f"Unsupported parameter: '{param}' is not supported with this model."
    if manner == "string":
        return wire.Error(400, {"error": text})
    if manner == "plain":
        return wire.Error(400, wire.error(text, kind="BadRequestError", code=400))
    kind = "invalid_request_error"
    return wire.Error(400, wire.error(text, kind=kind, code="unsupported_parameter", param=param))


def _failed(status: int, kind: str) -> wire.Error:
    text = _STATUS_TEXTS.get(status, "The request failed")
    return wire.Error(status, wire.error(text, kind=kind, code=status))


def _wrapped(text: str, wraps: Wrapping, schema: str) -> str:
    fence = f"```json\n{text}\n```"
    return {
        "": text,
        "fence": fence,
        "prose": f"Sure, here it is:\n\n{text}\n\nTell me if you need more {{or less}}.",
        "prose_and_fence": f"Sure, here it is:\n{fence}\nTell me if you need more.",
        "list": f"[{text}]",
        "named": json.dumps({schema: None})[:-5] + text + "}",
        "end_marker": f"{text}<|im_end|>",
    }[wraps]


def _parts(text: str) -> list[dict[str, Any]]:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHTS}]}
    return [thought, {"type": "text", "text": text}]


def _chunk(choice: dict[str, Any]) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, **choice}]}


def _odd(kind: OddChunk) -> bytes:
    if kind == "comment":
        return b": still working\n\n"
    chunk = {
        # A content filter that looks at the text beside the model annotates it like this.
        "no_delta": _chunk({"finish_reason": None, "content_filter_offsets": {"check_offset": 4}}),
        "null_delta": _chunk({"delta": None, "finish_reason": None}),
        "null_choices": {"object": "chat.completion.chunk", "choices": None},
        "no_choices": {"object": "chat.completion.chunk"},
        "ping": {"type": "ping"},
    }[kind]
    return wire.server_sent_event(chunk)
