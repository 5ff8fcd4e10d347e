"""Streams as servers send them, with notes of filters, pings, thoughts and errors in between."""

import json
from typing import Any

from canned_replies import (
    END,
    USAGE,
    USAGE_CHUNK,
    CannedReply,
    Expected,
    Failure,
    chunk,
    completion,
    events,
    shows,
    text,
)

_HELLO = text("Hello")
_SAFE = {"hate": {"filtered": False, "severity": "safe"}}
_FILTER_NOTE = {
    "id": "",
    "object": "",
    "created": 0,
    "model": "",
    "choices": [
        {
            "index": 0,
            "finish_reason": None,
            "content_filter_results": _SAFE,
            "content_filter_offsets": {"check_offset": 44, "start_offset": 44, "end_offset": 198},
        }
    ],
    "usage": None,
}
_THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


def _in_threes(said: str) -> list[Any]:
    pieces = [said[at : at + 3] for at in range(0, len(said), 3)]
    return [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]


def _fails(
    name: str,
    stream: bytes,
    failure: Failure,
    shown: str = "",
    reported: int | None = -1,
    max_requests: int = 1,
) -> CannedReply:
    expected = Expected(failure=failure, shown=shown, reported=reported)
    return CannedReply(name, expected, stream=stream, max_requests=max_requests)


CASES = (
    shows(
        "plain",
        "Hello world",
        chunk({"role": "assistant", "content": ""}),
        text("Hello "),
        text("world"),
        END,
        USAGE_CHUNK,
    ),
    shows(
        "comments, as from OpenRouter", "Hello", ": PROCESSING\n\n" * 2, _HELLO, END, USAGE_CHUNK
    ),
    shows(
        "thoughts apart",
        "Hello",
        chunk({"content": None, "reasoning_content": "hm"}),
        _HELLO,
        END,
        USAGE_CHUNK,
    ),
    shows(
        "note on the prompt first, as from Azure",
        "Hello",
        {"choices": [], "id": "", "model": "", "prompt_filter_results": [{}]},
        _HELLO,
        END,
        USAGE_CHUNK,
    ),
    shows(
        "notes without a delta, as from Azure's late filter",
        "Hello world",
        text("Hello "),
        _FILTER_NOTE,
        text("world"),
        END,
        _FILTER_NOTE,
        USAGE_CHUNK,
    ),
    shows("pings without choices", "Hello", {"type": "ping"}, _HELLO, END, {"usage": USAGE}),
    shows("choices null", "Hello", _HELLO, END, {"id": "x", "choices": None, "usage": USAGE}),
    shows(
        "parts in the delta, as from Mistral",
        "Hello",
        text([_THOUGHT]),
        text([{"type": "text", "text": "Hello"}]),
        END,
        USAGE_CHUNK,
    ),
    _fails(
        "error first",
        events({"error": {"message": "Rate limit", "code": 429}}),
        "rate_limited",
        reported=429,
        max_requests=2,
    ),
    _fails(
        "error beside a choice, as from OpenRouter",
        events(
            text("Hello "),
            {"error": {"code": 502, "message": "x"}, **chunk({"content": ""}, "error")},
        ),
        "unavailable",
        "Hello ",
        502,
    ),
    _fails("no end of any kind", events(_HELLO, done=False), "unavailable", "Hello"),
    _fails(
        "event of the kind error, as from llama-server",
        events('event: error\ndata: {"error": {"code": 500, "type": "server_error"}}\n\n'),
        "unavailable",
        reported=500,
        max_requests=2,
    ),
    CannedReply(
        "whole JSON though a stream was asked for",
        Expected(text="Hello"),
        body=completion({"content": "Hello"}),
        stream=json.dumps(completion({"content": "Hello"}), indent=1).encode(),
    ),
    _fails(
        "only thoughts up to the limit",
        events(chunk({"reasoning_content": "hm"}), chunk({}, "length"), USAGE_CHUNK),
        "output",
    ),
    shows("end mark of the template", "Hello", text("Hello<|im_end|>"), END, USAGE_CHUNK),
    # Our own.
    shows("byte order mark", "Hello", "\ufeff", _HELLO, END),
    shows("null for a chunk", "Hello", "data: null\n\n", _HELLO, END),
    shows(
        "usage in the last choice, as from Moonshot",
        "Hello",
        _HELLO,
        {"choices": [{"delta": {}, "finish_reason": "stop", "usage": USAGE}]},
    ),
    shows("usage aside, as from Groq", "Hello", _HELLO, {**END, "x_groq": {"usage": USAGE}}),
    shows("message for a delta", "Hello", {"choices": [{"message": {"content": "Hello"}}]}, END),
    shows(
        "tags in pieces", "Hello", *_in_threes("<think>a</thi>b</think>\n\nHello<|im_end|>"), END
    ),
    shows("marks without end", "Hello", _HELLO, *[text("<|im_end|>\n" * 20)] * 3, END),
    shows("letters of several bytes", "Größe ≤ 5 € 😀", *map(text, "Größe ≤ 5 € 😀"), END),
    shows(
        "more choices than asked for",
        "Hello",
        {"choices": [*_HELLO["choices"], {"index": 1, "delta": {"content": "Bye"}}]},
        END,
    ),
    _fails("thoughts that never end", events(text("<think>a"), text("b"), END), "output"),
    _fails("marks only", events(text("<|im_end|>"), text("</s>"), END), "output"),
    _fails(
        "refusal",
        events(chunk({"refusal": "I cannot"}), chunk({"refusal": " do that."}), END),
        "refused",
    ),
    _fails("a page", b"<html><body>Welcome</body></html>", "foreign", max_requests=2),
    _fails("chunk a number", events("data: 5\n\n"), "foreign", max_requests=2),
    _fails("choices a text", events(_HELLO, {"choices": "x"}), "foreign", "Hello"),
    _fails("filtered late", events(_HELLO, chunk({}, "content_filter")), "refused", "Hello"),
)
