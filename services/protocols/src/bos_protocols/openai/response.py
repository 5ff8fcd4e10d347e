"""A part of a run as a response of the Responses API, and as the events of its stream.

Everything here is a function of the run's events, so every replica makes the same of them. The
number of an event holds where it comes from: the sequence of the run's event times ``_RUN_EVENT``,
plus its place among those made of it, or, for a piece of text, ``_TEXT`` and the characters of the
answer up to its end. That is the cursor of the run's own stream: a client that has
seen number N has seen the text up to there, however it was cut into pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bos.gateway.v1 import OrchestratorResponse, RunEvent, RunStatus
from bos_client.text import outcome_name
from bos_conversation import answer_text
from bos_protocols.openai.parts import Part, ends_part
from bos_protocols.openai.requests import MODEL
from bos_protocols.openai.shown import annotations_of, reasoning_of, shown_approval, usage_of

_RUN_EVENT = 100_000_000
"""Numbers for what is made of one event; JavaScript counts exactly to 9e15."""
_TEXT = 1_000
_STATUS = {
    RunStatus.RUN_STATUS_FAILED: "failed",
    RunStatus.RUN_STATUS_CANCELLED: "cancelled",
}
_ENDS = {
    "completed": "response.completed",
    "failed": "response.failed",
    # The protocol has no event for it; the response inside says "cancelled".
    "cancelled": "response.incomplete",
}


@dataclass
class _Text:
    """The message under way."""

    item: dict[str, Any]
    index: int
    text: str = ""
    offset: int = 0
    """Characters up to its end."""
    known: int = 0
    """Characters that the client has seen before."""


@dataclass
class ResponseMaker:
    """Makes the events of a response out of those of its part, and the response as it stands."""

    part: Part
    public_url: str = ""
    echo: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the request that the response repeats."""
    starting_after: int = -1
    """Number of the last event that the client knows."""

    def __post_init__(self) -> None:
        self._made: list[dict[str, Any]] = []
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._text: _Text | None = None
        self._metadata: dict[str, str] = dict(self.echo.get("metadata") or {})
        self._metadata["bos_run_id"] = self.part.run_id
        self._status = "in_progress"
        self._error: dict[str, str] | None = None
        self._usage: dict[str, Any] | None = None
        self._created_at = 0
        self._completed_at: int | None = None

    def take(self, event: RunEvent) -> Sequence[dict[str, Any]]:
        """The response's events that come of the run's next one, without those known."""
        self._made = []
        if event.HasField("answer_delta"):
            self._piece(event)
        else:
            self._stored(event)
        return [made for made in self._made if made["sequence_number"] > self.starting_after]

    def _stored(self, event: RunEvent) -> None:
        """What comes of an event of the log."""
        self._number = event.sequence * _RUN_EVENT
        if not self._created_at:
            self._start(event)
        if text := reasoning_of(event):
            self._reasoning(event.sequence, text)
        if event.HasField("answer_started"):
            self._void()
            self._open(event.sequence)
        if ends_part(self.part, event):
            self._end(event)

    def response(self) -> dict[str, Any]:
        """The response as it stands."""
        return {
            "id": self.part.response_id,
            "object": "response",
            "created_at": self._created_at,
            "completed_at": self._completed_at,
            "status": self._status,
            "error": self._error,
            "incomplete_details": None,
            "instructions": self.echo.get("instructions"),
            "max_output_tokens": None,
            "model": self.echo.get("model", MODEL),
            "output": [dict(item) for item in self._output],
            "parallel_tool_calls": True,
            "previous_response_id": self.echo.get("previous_response_id"),
            "conversation": self._conversation(),
            "background": bool(self.echo.get("background")),
            "reasoning": {"effort": None, "summary": None},
            "store": self.echo.get("store", True),
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
            "usage": self._usage,
            "metadata": dict(self._metadata),
        }

    def _conversation(self) -> dict[str, str] | None:
        named = self._metadata.get("bos_conversation_id")
        return {"id": named} if named else None

    def _start(self, event: RunEvent) -> None:
        self._created_at = event.create_time.seconds
        if event.run_accepted.conversation_id:
            self._metadata["bos_conversation_id"] = event.run_accepted.conversation_id
        for name in ("response.created", "response.in_progress"):
            self._emit(name, response=self.response())

    def _reasoning(self, sequence: int, text: str) -> None:
        index = len(self._output)
        item: dict[str, Any] = {
            "id": f"rs_{self.part.run_id}_{sequence}",
            "type": "reasoning",
            "status": "completed",
            "summary": [{"type": "summary_text", "text": text}],
        }
        place = {"item_id": item["id"], "output_index": index, "summary_index": 0}
        part = item["summary"][0]
        opened = {**item, "status": "in_progress", "summary": []}
        self._output.append(item)
        self._emit("response.output_item.added", output_index=index, item=opened)
        before = "response.reasoning_summary"
        self._emit(f"{before}_part.added", **place, part={**part, "text": ""})
        self._emit(f"{before}_text.delta", **place, delta=text)
        self._emit(f"{before}_text.done", **place, text=text)
        self._emit(f"{before}_part.done", **place, part=part)
        self._emit("response.output_item.done", output_index=index, item=dict(item))

    def _open(self, sequence: int) -> _Text:
        """Begin the message with the answer."""
        item: dict[str, Any] = {
            "id": f"msg_{self.part.run_id}_{sequence}",
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
        began = sequence * _RUN_EVENT
        seen, inside = divmod(max(self.starting_after, 0), _RUN_EVENT)
        known = inside - _TEXT if seen * _RUN_EVENT >= began and inside >= _TEXT else 0
        self._text = opened = _Text(item, len(self._output), known=known)
        self._output.append(item)
        self._emit("response.output_item.added", output_index=opened.index, item=dict(item))
        self._emit("response.content_part.added", **self._place(opened), part=_output_text(""))
        return opened

    def _piece(self, event: RunEvent) -> None:
        """A piece of the answer, without what the client knows of it."""
        piece, opened = event.answer_delta, self._text
        if opened is None:
            return
        opened.text += piece.text
        opened.offset = piece.offset + len(piece.text)
        new = piece.text[max(opened.known - piece.offset, 0) :]
        if new:
            self._number = event.sequence * _RUN_EVENT + _TEXT + opened.offset
            self._delta(opened, new)

    def _void(self) -> None:
        """Close the message of an attempt that broke off: its text does not count."""
        if self._text is None:
            return
        self._text.item["status"] = "incomplete"
        self._emit(
            "response.output_item.done",
            output_index=self._text.index,
            item=dict(self._text.item),
        )
        self._text = None

    def _end(self, event: RunEvent) -> None:
        self._completed_at = event.create_time.seconds
        if event.HasField("approval_requested"):
            approval = event.approval_requested.approval
            following = Part(self.part.run_id, event.sequence)
            self._metadata["bos_approval_id"] = approval.approval_id
            self._metadata["bos_next_response_id"] = following.response_id
            self._status = "completed"
            self._void()
            self._say(event.sequence, shown_approval(approval), [])
        else:
            self._outcome(event.sequence, event.run_finished.response)
        if self._status != "completed":
            self._completed_at = None
        self._emit(_ENDS[self._status], response=self.response())

    def _outcome(self, sequence: int, outcome: OrchestratorResponse) -> None:
        """The end of the run."""
        self._status = _STATUS.get(outcome.status, "completed")
        self._usage = usage_of(outcome.metadata.usage)
        if outcome.metadata.conversation_id:
            self._metadata["bos_conversation_id"] = outcome.metadata.conversation_id
        self._metadata["bos_status"] = RunStatus.Name(outcome.status).removeprefix("RUN_STATUS_")
        self._metadata["bos_outcome"] = outcome_name(outcome.outcome)
        text = answer_text(outcome, self.public_url)
        if self._status == "completed":
            self._say(sequence, text, annotations_of(text, outcome.sources))
            return
        self._void()
        if self._status == "failed":
            if outcome.error.type:
                self._metadata["bos_error_type"] = outcome.error.type
            self._error = {"code": "server_error", "message": text}

    def _say(self, sequence: int, text: str, annotations: list[dict[str, Any]]) -> None:
        """The whole text: what is missing of it as a last piece, then that it is done."""
        opened = self._text or self._open(sequence)
        place = self._place(opened)
        if text.startswith(opened.text):
            seen = max(opened.offset, opened.known)
            if rest := text[seen:]:
                self._delta(opened, rest)
        for at, each in enumerate(annotations):
            self._emit(
                "response.output_text.annotation.added",
                **place,
                annotation_index=at,
                annotation=each,
            )
        part = _output_text(text, annotations)
        opened.item.update(status="completed", content=[part])
        self._emit("response.output_text.done", **place, text=text, logprobs=[])
        self._emit("response.content_part.done", **place, part=part)
        self._emit("response.output_item.done", output_index=opened.index, item=dict(opened.item))
        self._text = None

    def _delta(self, opened: _Text, text: str) -> None:
        self._emit("response.output_text.delta", **self._place(opened), delta=text, logprobs=[])

    def _place(self, opened: _Text) -> dict[str, Any]:
        return {"item_id": opened.item["id"], "output_index": opened.index, "content_index": 0}

    def _emit(self, kind: str, **content: Any) -> None:
        self._made.append({"type": kind, "sequence_number": self._number, **content})
        self._number += 1


def _output_text(text: str, annotations: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    return {
        "type": "output_text",
        "text": text,
        "annotations": list(annotations),
        "logprobs": [],
    }
