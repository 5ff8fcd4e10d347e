"""Bodies of webhook events: plain JSON of a run or an approval, bounded in size. Pure.

What is too large is left out, part by part, and the parts are named in ``omitted``: the receiver
fetches the run or the approval if it needs them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from google.protobuf.message import Message

from bos.gateway.v1 import Approval, Run
from bos_plainjson import plain_json

FINISHED: Final = "run.finished"
REQUESTED: Final = "approval.requested"
TEST: Final = "webhook.test"

# The largest and least needed first.
_PARTS_OF_RUN: Final = (
    *("journal", "working_context", "response.trace", "response.agent_results", "plan"),
    *("response.planner", "response.data", "response.sections", "response.charts"),
    "response.sources",
    *("response.clarification", "response.highlights", "response.followups", "response.metadata"),
    *("response.answer", "original_question", "response.error", "response", "question"),
)
_PARTS_OF_APPROVAL: Final = ("display", "origins", "actions", "task_description")


def run_finished(run: Run, at: datetime, max_bytes: int) -> bytes:
    """Body of the event that a run has ended."""
    return _bounded(FINISHED, at, "run", run, _PARTS_OF_RUN, max_bytes)


def approval_requested(approval: Approval, at: datetime, max_bytes: int) -> bytes:
    """Body of the event that a run waits for an approval."""
    return _bounded(REQUESTED, at, "approval", approval, _PARTS_OF_APPROVAL, max_bytes)


def test(webhook_id: str, at: datetime) -> bytes:
    """Body of the event that tries a webhook out."""
    return _body(TEST, at, {"webhook_id": webhook_id})


def _bounded(
    kind: str, at: datetime, name: str, message: Message, parts: Sequence[str], max_bytes: int
) -> bytes:
    shown = type(message)()
    shown.CopyFrom(message)
    omitted: list[str] = []
    remaining = iter(part for part in parts if _has(shown, part))
    while True:
        # JSON is hardly ever smaller than the message, so what is much too large is not tried.
        if shown.ByteSize() <= max_bytes:
            data = {"run_id": _run_id(shown), name: plain_json(shown), "omitted": omitted}
            body = _body(kind, at, data)
            if len(body) <= max_bytes:
                return body
        part = next(remaining, None)
        if part is None:
            data = {"run_id": _run_id(shown), "omitted": [name]}
            return _body(kind, at, data)
        if _has(shown, part):
            _clear(shown, part)
            omitted.append(f"{name}.{part}")


def _run_id(message: Any) -> str:
    run_id: str = message.run_id
    return run_id


def _has(message: Any, part: str) -> bool:
    *outer, last = part.split(".")
    for name in outer:
        if not message.HasField(name):
            return False
        message = getattr(message, name)
    return any(field.name == last for field, _ in message.ListFields())


def _clear(message: Any, part: str) -> None:
    *outer, last = part.split(".")
    for name in outer:
        message = getattr(message, name)
    message.ClearField(last)


def _body(kind: str, at: datetime, data: dict[str, Any]) -> bytes:
    event = {"type": kind, "timestamp": at.isoformat().replace("+00:00", "Z"), "data": data}
    return json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
