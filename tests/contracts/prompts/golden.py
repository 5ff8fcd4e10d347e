"""Prompts as files to read and compare: one per kind of call, with each of its branches."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bos_testkit.scripted_model.server import RecordedRequest

from .asking import Asked

# What differs between two starts of the same product, and what stands for it.
_MASKS: Final = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
    (re.compile(r"(?:127\.0\.0\.1|localhost):\d+"), "<address>"),
)
_SHOWN_ELSEWHERE: Final = frozenset({"messages", "model", "response_format", "stream_options"})


def by_kind(asked: Sequence[Asked]) -> dict[str, str]:
    """The first prompt of each branch, one text per kind: the schema of its reply, or its caller.

    A branch is a system message, a set of headings, and whether the plan has several steps.
    """
    files: dict[str, list[str]] = {}
    seen: set[tuple[object, ...]] = set()
    for each in asked:
        for who, call in each.path:
            kind = call.schema or who.split()[0]
            texts = [masked(_text(message)) for message in call.messages]
            headings = tuple(line for line in call.prompt.splitlines() if line.startswith("###"))
            branch = (kind, texts[0], headings, len(each.question.steps) > 1)
            if branch in seen:
                continue
            seen.add(branch)
            lines = files.setdefault(kind, [f"# {kind}"])
            lines += ["", f"## {each.question.id}: {who}", "", _parameters(call.body)]
            for message, text in zip(call.messages, texts, strict=True):
                known = message["role"] == "system" and "\n".join(_fenced(text)) in "\n".join(lines)
                lines += ["", f"{message['role']}:", ""]
                lines += ["As above."] if known else _fenced(text)
    return {kind: "\n".join(lines) + "\n" for kind, lines in files.items()}


def forms(asked: Sequence[Asked]) -> str:
    """The JSON schemas that go with the prompts, each once, in the order of their first use."""
    schemas: dict[str, str] = {}
    for call in calls_of(asked):
        form = call.body.get("response_format")
        if call.schema is not None and form is not None:
            schemas.setdefault(call.schema, json.dumps(form, indent=1, ensure_ascii=False))
    parts = [f"\n## {name}\n\n~~~json\n{text}\n~~~\n" for name, text in schemas.items()]
    return "".join(["# Forms of replies\n", *parts])


def masked(text: str) -> str:
    """``text`` without what differs between two runs."""
    for pattern, stands_for in _MASKS:
        text = pattern.sub(stands_for, text)
    return text


def _parameters(body: Mapping[str, Any]) -> str:
    sent = [f"{name}={body[name]}" for name in sorted(body) if name not in _SHOWN_ELSEWHERE]
    return f"Sent with it: {', '.join(sent) or 'nothing'}."


def _fenced(text: str) -> Iterator[str]:
    longest = max((len(run) for run in re.findall(r"^~+", text, re.MULTILINE)), default=0)
    fence = "~" * max(3, longest + 1)
    yield f"{fence}text"
    yield text
    yield fence


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else repr(content)


def calls_of(asked: Sequence[Asked]) -> list[RecordedRequest]:
    """All calls, for checks that look at every prompt."""
    return [call for each in asked for _, call in each.path]
