"""Replies that mean a value, in all the wrappings that models and servers give it."""

import json

from canned_replies import (
    GOOD,
    VALUE,
    CannedReply,
    Expected,
    TableChoice,
    completion,
    says,
    unusable,
)

FENCE = "```"
_TOOL = {"name": "TableChoice", "arguments": GOOD}
_PYTHON = "{'tables': ['orders'], 'is_clear': True, 'note': None,}"
_OTHER = json.dumps({"tables": ["example"], "is_clear": False})


def _by(name: str, message: dict[str, object], finish: str = "stop") -> CannedReply:
    return CannedReply(name, Expected(value=VALUE), body=completion(message, finish))


def _with(**changed: object) -> str:
    return json.dumps({**VALUE, **changed})


CASES = (
    says("plain", GOOD),
    says("fence only", f"{FENCE}json\n{GOOD}\n{FENCE}"),
    says("thoughts before it, as from Qwen3 and R1", f"<think>\n{{tables}}?\n</think>\n\n{GOOD}"),
    says("prose and fence", f"Here is the JSON you asked for:\n{FENCE}json\n{GOOD}\n{FENCE}"),
    says("end mark of the template", f"{GOOD}<|im_end|>"),
    says(
        "list of parts, as from magistral",
        [
            {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
            {"type": "text", "text": GOOD},
        ],
    ),
    unusable("thoughts only", None, reasoning_content="I think..."),
    _by(
        "arguments of a tool call",
        {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": _TOOL}]},
        "tool_calls",
    ),
    unusable("cut off", GOOD[:40], "length"),
    says("whole though the limit was reached", GOOD, "length"),
    says("under the schema's name", json.dumps({"TableChoice": VALUE})),
    says("defaults left out", '{"tables":["orders"],"is_clear":true}'),
    # Our own.
    says("two parts of text", [{"type": "text", "text": GOOD[:20]}, {"text": GOOD[20:]}]),
    says("part of text as an object", [{"type": "text", "text": {"value": GOOD}}]),
    says(
        "final channel of gpt-oss",
        f"<|channel|>analysis<|message|>{_OTHER}<|end|><|start|>assistant"
        f"<|channel|>final<|message|>{GOOD}<|return|>",
    ),
    says("tags within the text stay", _with(note="<think>no</think>"), note="<think>no</think>"),
    says("an example before it", f"Such as {_OTHER}. So:\n{GOOD}"),
    says("prose in braces around and after", f"{{see {{x}}: {GOOD} }} and {{that}} is it"),
    says("an open brace and a quotation mark before it", f'In {{"tables we have:\n{GOOD}'),
    says("fence that never ends", f"{FENCE}json\n{GOOD}"),
    says("under result", json.dumps({"result": VALUE})),
    says("filled into the schema", json.dumps({"type": "object", "properties": VALUE})),
    unusable("the schema itself", json.dumps(TableChoice.model_json_schema())),
    says("tool call as text", json.dumps({"name": "TableChoice", "parameters": VALUE})),
    says("tool call as text in text", json.dumps({"name": "TableChoice", "arguments": GOOD})),
    says("Python's spelling", _PYTHON),
    says(
        "apostrophes in single quotes",
        r"{'tables': ['it\'s \"x\"'], 'is_clear': True}",
        tables=['it\'s "x"'],
    ),
    says("line break within a text", '{"tables":["a\nb"],"is_clear":true}', tables=["a\nb"]),
    says(
        "other spelling of the names",
        '{"Tables":["orders"],"isClear":true,"Clarifying questions":[]}',
    ),
    says("unrequested keys", _with(confidence=0.9, thoughts="none")),
    says("braces and quotes within texts", _with(note='} " {'), note='} " {'),
    says("byte order mark", "\ufeff" + GOOD),
    _by("function call of the older API", {"content": "", "function_call": _TOOL}, "function_call"),
    _by("tool call beside prose", {"content": "I call it.", "tool_calls": [{"function": _TOOL}]}),
    _by("in the thoughts, as from older vLLM", {"content": None, "reasoning_content": GOOD}),
    _by("at the end of the thoughts", {"content": "", "reasoning": f"{_OTHER}? No: {GOOD}"}),
    CannedReply(
        "text of the older API",
        Expected(value=VALUE),
        body={"choices": [{"text": GOOD, "finish_reason": "stop"}]},
    ),
    CannedReply(
        "numbers of tokens that are none",
        Expected(value=VALUE),
        body=completion(
            {"content": GOOD},
            usage={"prompt_tokens": -1, "completion_tokens": 1e300, "total_tokens": "many"},
        ),
    ),
    CannedReply(
        "unknown keys and null everywhere",
        Expected(value=VALUE),
        body=completion(
            {"content": GOOD, "refusal": None, "tool_calls": None, "reasoning": None},
            error=None,
            usage=None,
            model=None,
            x_groq=None,
        ),
    ),
    unusable("an example, then cut off", f"Such as {_OTHER}. So: {GOOD[:50]}", "length"),
    unusable("whole part of something cut off", f'{{"steps": [{GOOD}, {{"tab', "length"),
    unusable("thoughts in the middle of which it stands", None, reasoning=f"{GOOD} or not?"),
    unusable("thoughts cut off behind it", None, "length", reasoning=GOOD),
    unusable("two of it in a list", f"[{GOOD}, {_OTHER}]"),
    unusable("null for what has no default", _with(tables=None)),
    unusable("numbers for tables are not guessed", _with(tables={"orders": 1})),
    unusable("prose only", "I would use the table orders."),
    unusable("no content, no call", None),
)
