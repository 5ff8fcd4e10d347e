"""The parts of a chat completion as vendors spell them: content, thoughts, tool calls, usage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MAX_COUNT = 2**53
"""Above it a number of JSON is not exact; no count of tokens comes near it."""
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_MAX_NESTING = 4

_FINISHES = {
    "stop": ("end_turn", "eos", "eos_token", "stop_sequence", "completed", "complete"),
    "length": ("max_tokens", "model_length", "max_output_tokens", "max_length", "token_limit"),
    "content_filter": (
        "content_filtered",
        "safety",
        "prohibited_content",
        "blocklist",
        "recitation",
        "spii",
        "sensitive",
        "guardrail_intervened",
    ),
    "tool_calls": ("tool_use", "function_call", "tool_call"),
}
_FINISH_OF = {name: finish for finish, names in _FINISHES.items() for name in names}


@dataclass(frozen=True, slots=True)
class TokenCount:
    """The ``usage`` of a reply."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    """Part of the input that was not read anew, which is cheaper."""
    reasoning_tokens: int = 0
    """Part of the output that was thought and not said."""


@dataclass(frozen=True, slots=True)
class Content:
    """The ``content`` of a message, which may be a list of parts."""

    text: str = ""
    thinking: str = ""
    refusal: str = ""


def string(value: Any) -> str:
    """``value`` if it is a text."""
    return value if isinstance(value, str) else ""


def finish_reason(value: Any) -> str | None:
    """Why a reply ended, by OpenAI's name for it; None if it has not, or nothing says so."""
    name = string(value).strip().lower()
    if name in ("", "null", "none"):
        return None
    return _FINISH_OF.get(name, name)


def read_content(content: Any) -> Content:
    """Text, thoughts and refusal out of a message's content, whichever form it has."""
    if not isinstance(content, list):
        return Content(_text(content))
    said: dict[str, list[str]] = {"text": [], "thinking": [], "refusal": []}
    for part in content:
        kind = string(part.get("type")) if isinstance(part, dict) else "text"
        if kind in ("text", "output_text", ""):
            said["text"].append(_text(part))
        elif kind in ("thinking", "reasoning", "reasoning_text"):
            said["thinking"].append(_thoughts(part))
        elif kind == "refusal":
            said["refusal"].append(string(part.get("refusal")))
    return Content(*("".join(texts) for texts in said.values()))


def read_reasoning(message: Mapping[str, Any]) -> str:
    """What the model thought, by any of the names that endpoints have for it."""
    return next(
        (found for key in _REASONING_KEYS if (found := _thoughts(message.get(key)))),
        "",
    )


def read_tool_arguments(message: Mapping[str, Any]) -> str:
    """The arguments of the first tool call; the same of a call in the older form; "" for none."""
    calls = message.get("tool_calls")
    call = calls[0] if isinstance(calls, list) and calls else None
    if isinstance(call, dict) and call.get("index") in (0, None):
        function = call.get("function")
    else:
        function = message.get("function_call")
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if isinstance(arguments, dict):
        try:
            return json.dumps(arguments)
        except RecursionError:
            return ""
    return string(arguments)


def read_usage(usage: Any) -> TokenCount | None:
    """The tokens of a reply; None if the endpoint does not count, or counts nonsense."""
    if not isinstance(usage, dict):
        return None
    sent = read_count(usage, "prompt_tokens", "input_tokens")
    received = read_count(usage, "completion_tokens", "output_tokens")
    if sent is None or received is None:
        return None
    prompt = _details(usage, "prompt_tokens_details", "input_tokens_details")
    reply = _details(usage, "completion_tokens_details", "output_tokens_details")
    cached = read_count(prompt, "cached_tokens") or read_count(
        usage, "prompt_cache_hit_tokens", "cache_read_input_tokens"
    )
    thought = read_count(reply, "reasoning_tokens")
    return TokenCount(sent, received, min(cached or 0, sent), min(thought or 0, received))


def _text(part: Any) -> str:
    for _ in range(_MAX_NESTING):
        if not isinstance(part, dict):
            break
        part = part.get("text", part.get("value"))
    return string(part)


def _thoughts(part: Any, depth: int = 0) -> str:
    """The texts in a part that holds thoughts, whose nesting differs by vendor."""
    if isinstance(part, str):
        return part
    if depth >= _MAX_NESTING:
        return ""
    if isinstance(part, list):
        return "".join(_thoughts(each, depth + 1) for each in part)
    if isinstance(part, dict):
        keys = ("thinking", "reasoning", "text", "content", "summary")
        return next((found for key in keys if (found := _thoughts(part.get(key), depth + 1))), "")
    return ""


def _details(usage: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((found for name in names if isinstance(found := usage.get(name), dict)), {})


def read_count(counts: Mapping[str, Any], *names: str) -> int | None:
    """The first count that the reply holds under one of the names."""
    return next((found for name in names if (found := _count(counts.get(name))) is not None), None)


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Comparing comes first: an infinite number has no whole part to take.
    return int(value) if 0 <= value <= _MAX_COUNT else None
