"""Display of proposed actions to approvers, as lines of text. Pure.

Every user interface shows these lines (``Approval.display``). Two actions that differ are shown
differently: types are named, nothing is invisible (:mod:`bos_gateway.core.shown.escapes`), and
text that is too long to be shown whole says how much is missing and has its SHA-256.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from datetime import UTC
from itertools import accumulate
from typing import Final

from bos.agent.v1 import ProposedAction, SideEffectClass
from bos.common.v1 import Value
from bos.gateway import v1 as gateway
from bos.gateway.v1 import ActionDisplay, Approval, ApprovalDisplay, ContentOrigin, DisplayBlock
from bos_gateway.core.shown.escapes import visible, visible_lines
from bos_plans import is_time

MAX_LINES: Final = 2_000
"""Lines shown of one argument."""
MAX_TEXT_CHARS: Final = 65_536
"""Characters shown of one text."""
MAX_SHOWN_BYTES: Final = 256
"""Bytes shown of one value of bytes."""
MAX_SHOWN_CHARS: Final = 1024 * 1024
"""Characters shown of one request: it must fit into a message, however its values are nested."""
MAX_TITLE_CHARS: Final = 500
"""Characters shown of a summary."""
_SHORT_CHARS: Final = 200
_BYTES_A_LINE: Final = 32
_INDENT: Final = "    "
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")

_TAINTED: Final = "rests on content that others wrote"
_ORIGINS: Final = {
    gateway.CONTENT_ORIGIN_KIND_REQUEST: "from the question or what came with it",
    gateway.CONTENT_ORIGIN_KIND_CONVERSATION: "from earlier messages of the conversation",
    gateway.CONTENT_ORIGIN_KIND_MEMORY: "from what is remembered about the user",
    gateway.CONTENT_ORIGIN_KIND_CLARIFICATIONS: "from clarifying questions and their answers",
}
_EFFECTS: Final = {
    SideEffectClass.SIDE_EFFECT_CLASS_UNSPECIFIED: "effect not declared: may not be undone",
    SideEffectClass.SIDE_EFFECT_CLASS_NONE: "only reads",
    SideEffectClass.SIDE_EFFECT_CLASS_IDEMPOTENT: "changes something; done twice it counts once",
    SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE: "changes something; cannot be undone",
}


def approval_display(approval: Approval, *, whole: bool = True) -> ApprovalDisplay:
    """Display of a request to its approver.

    Args:
        approval: The request.
        whole: With task and arguments; without them for lists.
    """
    room = _Room()
    task = room.fitting(visible_lines(approval.task_description)) if whole else ()
    origins = [_origin(each) for each in approval.origins]
    actions = [
        action_display(action, whole=whole, room=room, origins=origins)
        for action in approval.actions
    ]
    return ApprovalDisplay(task=task, actions=actions)


def action_display(
    action: ProposedAction,
    *,
    whole: bool = True,
    room: _Room | None = None,
    origins: Iterable[str] = (),
) -> ActionDisplay:
    """One action: its summary, its tool, what to know of it, and its exact arguments by name.

    Args:
        action: The action.
        whole: With arguments.
        room: What may still be shown of the request.
        origins: Where content of others came from, in words; shown if the action is tainted.
    """
    room = room or _Room()
    effect = _EFFECTS.get(action.side_effect, f"effect of unknown kind {action.side_effect}")
    fields = sorted(action.arguments.fields.items()) if whole else ()
    return ActionDisplay(
        title=_title(action.summary),
        tool=visible(action.tool),
        notes=[*((_TAINTED, *origins) if action.tainted else ()), effect],
        arguments=[_block(name, value, room) for name, value in fields],
    )


def with_display(approval: Approval, *, whole: bool = True) -> Approval:
    """``approval`` with its display, in place."""
    approval.display.CopyFrom(approval_display(approval, whole=whole))
    return approval


def _origin(origin: ContentOrigin) -> str:
    """Where content of others came from; names that others chose stand in quotes."""
    if origin.kind != gateway.CONTENT_ORIGIN_KIND_STEP:
        return _ORIGINS.get(origin.kind, f"from a place of unknown kind {origin.kind}")
    step = f"from step {_name(origin.step_id)} of the agent {_name(origin.agent_name)}"
    named = [[_quoted(text) for text in (s.title, s.uri) if text] for s in origin.sources]
    return ": ".join(filter(None, (step, "; ".join(" at ".join(each) for each in named if each))))


def _title(summary: str) -> str:
    if len(summary) <= MAX_TITLE_CHARS:
        return visible(summary)
    left = len(summary) - MAX_TITLE_CHARS
    about = f"({left} more characters, {_sha256(summary.encode())})"
    return f"{visible(summary[:MAX_TITLE_CHARS])} {about}"


class _Room:
    """What may still be shown of a request."""

    def __init__(self) -> None:
        self._chars = MAX_SHOWN_CHARS

    def fitting(self, lines: list[str]) -> list[str]:
        """The lines that there is room for; what is left out is said."""
        ends = accumulate(len(line) for line in lines[:MAX_LINES])
        count = sum(end <= self._chars for end in ends)
        self._chars -= sum(map(len, lines[:count]))
        left = len(lines) - count
        return [*lines[:count], f"({left} more lines are not shown)"] if left else lines


def _block(name: str, value: Value, room: _Room) -> DisplayBlock:
    kind, lines = _typed(value)
    shown = room.fitting(lines)
    if shown is not lines:
        kind = f"{kind}, {_sha256(value.SerializeToString(deterministic=True))}"
    return DisplayBlock(label=_name(name), type=kind, lines=shown)


def _typed(value: Value, indent: str = "") -> tuple[str, list[str]]:
    """The type of a value in words, and the value in lines; parts of lists and maps indented."""
    match value.WhichOneof("kind"):
        case "bool_value":
            return "boolean", ["true" if value.bool_value else "false"]
        case "int64_value":
            return "int64", [str(value.int64_value)]
        case "double_value":
            return "double", [repr(value.double_value)]
        case "decimal_value":
            return _long("decimal", value.decimal_value)
        case "string_value":
            return _long("text", value.string_value)
        case "bytes_value":
            return _bytes(value.bytes_value)
        case "date_value":
            day = value.date_value
            return "date", [f"{day.year:04}-{day.month:02}-{day.day:02}"]
        case "timestamp_value":
            return "timestamp", [_time(value)]
        case "list_value":
            items = value.list_value.values
            numbered = ((f"[{number}]", item) for number, item in enumerate(items, 1))
            return f"list of {len(items)}", list(_nested(numbered, indent))
        case "map_value":
            fields = sorted(value.map_value.fields.items())
            named = ((_name(name), item) for name, item in fields)
            return f"map of {len(fields)}", list(_nested(named, indent))
        case _:
            return "null", []


def _nested(parts: Iterator[tuple[str, Value]], indent: str) -> Iterator[str]:
    """Parts of a list or map: what is one line stands behind its type, all else below it."""
    for label, value in parts:
        deeper = indent + _INDENT
        kind, lines = _typed(value, deeper)
        head = f"{indent}{label} ({kind}):"
        if value.WhichOneof("kind") in ("list_value", "map_value"):
            yield head
            yield from lines
        elif len(lines) == 1:
            yield f"{head} {lines[0]}"
        else:
            yield head
            yield from (deeper + line for line in lines)


def _long(kind: str, text: str) -> tuple[str, list[str]]:
    """A text: one line as it is, several with numbers; what is long has its digest."""
    if not text:
        return f"{kind}, empty", []
    if len(text) <= _SHORT_CHARS and "\n" not in text:
        return kind, [visible(text)]
    count = text.count("\n") + 1
    about = f"{len(text)} characters, {_sha256(text.encode())}"
    if count == 1:
        lines = [visible(text[:MAX_TEXT_CHARS])]
    else:
        about = f"{count} lines, {about}"
        width = len(str(count))
        shown = enumerate(visible_lines(text[:MAX_TEXT_CHARS]), 1)
        lines = [f"{number:{width}} | {line}" for number, line in shown]
    if (left := len(text) - MAX_TEXT_CHARS) > 0:
        lines.append(f"({left} more characters are not shown)")
    return f"{kind}, {about}", lines


def _bytes(content: bytes) -> tuple[str, list[str]]:
    shown = content[:MAX_SHOWN_BYTES]
    lines = [
        shown[start : start + _BYTES_A_LINE].hex(" ")
        for start in range(0, len(shown), _BYTES_A_LINE)
    ]
    if left := len(content) - len(shown):
        lines.append(f"({left} more bytes are not shown)")
    return f"bytes, {len(content)}, {_sha256(content)}", lines


def _time(value: Value) -> str:
    stamp = value.timestamp_value
    if not is_time(stamp):
        return f"{stamp.seconds} s and {stamp.nanos} ns since 1970, which is no time"
    return f"{stamp.ToDatetime(UTC):%Y-%m-%d %H:%M:%S}.{stamp.nanos:09} UTC"


def _name(name: str) -> str:
    """A name that cannot pass for more than a name."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    return _quoted(name)


def _quoted(text: str) -> str:
    return '"' + visible(text).replace('"', "\\u{22}") + '"'


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
