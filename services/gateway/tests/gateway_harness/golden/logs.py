"""Stored logs of earlier versions, and what they must still mean.

``stored/v1/NAME.binpb`` holds the events of one run as they were stored under schema version 1,
each with its length before it; ``NAME.json`` what the fold and the projection make of them. The
logs are never recorded anew: a later schema gets a folder of its own.
"""

import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.proto import parse_length_prefixed, serialize_length_prefixed

from bos.agent.v1 import AgentExecutionStatus
from bos.gateway.v1 import RunStatus
from bos.runlog.v1 import LogEvent
from bos_gateway.core.fold import fold
from bos_gateway.core.public_events import project
from bos_gateway.core.revision_context import journal
from bos_gateway.core.run_state import RunState

GOLDEN = Path(__file__).parent / "stored"
NAMES = sorted(str(path.relative_to(GOLDEN).with_suffix("")) for path in GOLDEN.rglob("*.binpb"))


def load(name: str) -> list[LogEvent]:
    stream = BytesIO((GOLDEN / f"{name}.binpb").read_bytes())
    events = []
    while (event := parse_length_prefixed(LogEvent, stream)) is not None:
        events.append(event)
    return events


def save(name: str, events: Sequence[LogEvent]) -> None:
    """Store a log with its present meaning."""
    stream = BytesIO()
    for event in events:
        serialize_length_prefixed(event, stream)
    path = GOLDEN / f"{name}.binpb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(stream.getvalue())
    pin(name, events)


def pin(name: str, events: Sequence[LogEvent]) -> None:
    """Store what a log means at present; the log itself stays as it is, to the byte."""
    text = json.dumps(meaning(events), indent=1, ensure_ascii=False, sort_keys=True)
    (GOLDEN / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def pinned(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


def meaning(events: Sequence[LogEvent]) -> dict[str, Any]:
    """The state after all events, and what a client sees of them."""
    run_id = "0"
    request = events[0].run_accepted.request
    projected = [project(run_id, n, event, request) for n, event in enumerate(events, 1)]
    for each in filter(None, projected):
        # How an approval is shown follows from the rest and may change; it has tests of its own.
        for kind in ("approval_requested", "approval_resolved"):
            if each.HasField(kind):
                getattr(each, kind).approval.ClearField("display")
    public = [MessageToDict(p, preserving_proto_field_name=True) for p in projected if p]
    return {"state": summary(fold(run_id, events)), "public": public}


def summary(state: RunState) -> dict[str, Any]:
    """What the state holds, without the messages it holds whole."""
    revised = {"journal": [each.entry for each in journal(state)]} if state.past else {}
    return {
        **revised,
        "status": RunStatus.Name(state.status),
        "last_sequence": state.last_sequence,
        "accepted": state.accept_time.isoformat(),
        "updated": state.update_time.isoformat(),
        "revision": state.revision,
        "order": state.order,
        "turns": state.turns,
        "answer_attempt": state.answer_attempt,
        "cancel_reason": state.cancel_reason,
        "plan_failure": state.plan_failure.type if state.plan_failure else None,
        "questions": len(state.clarification.questions) if state.clarification else None,
        "outputs": sorted(state.outputs),
        "usage": MessageToDict(state.usage, preserving_proto_field_name=True),
        "answer": state.response.answer if state.response else None,
        "steps": {
            step_id: {
                "agent_id": step.agent_id,
                "needs": sorted(step.needs),
                "status": AgentExecutionStatus.Name(step.status),
                "attempt": step.attempt,
                "interrupted": step.interrupted,
                "trace": len(step.trace),
                "answer": step.result.answer if step.result else None,
                "error": step.result.error.type if step.result else None,
            }
            for step_id, step in state.steps.items()
        },
    }
