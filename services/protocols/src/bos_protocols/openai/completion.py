"""A part of a run as a chat completion, whole or in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bos.common.v1 import Outcome, Usage
from bos.gateway.v1 import RunEvent, RunStatus
from bos_client.text import outcome_name
from bos_conversation import answer_text
from bos_protocols.openai.parts import Part, ends_part
from bos_protocols.openai.shown import annotations_of, chat_usage_of, reasoning_of, shown_approval

_STARTS_OVER = "\n\n---\n\n"


@dataclass
class CompletionMaker:
    """Makes what chunks add out of a part's events, and the whole completion.

    A chunk cannot be taken back: where an answer starts over, or ends otherwise than it was
    written, a line is drawn and the text that counts follows.
    """

    part: Part
    model: str
    public_url: str

    def __post_init__(self) -> None:
        self._created = 0
        self._said = ""
        self._text = ""
        self._reasoning: list[str] = []
        self._annotations: list[dict[str, Any]] = []
        self._usage = chat_usage_of(Usage())  # of a part whose run goes on
        self._finish_reason = "stop"
        self._bos: dict[str, str] = {"run_id": self.part.run_id}

    def take(self, event: RunEvent) -> Iterator[dict[str, Any]]:
        """The chunks that come of an event."""
        if not self._created:
            self._created = event.create_time.seconds
            yield self._chunk({"role": "assistant", "content": ""})
        if text := reasoning_of(event):
            self._reasoning.append(text)
            yield self._chunk({"reasoning_content": text + "\n"})
        if event.HasField("answer_delta"):
            yield self._add(event.answer_delta.text)
        elif event.HasField("answer_started") and self._said:
            self._said = ""
            yield self._chunk({"content": _STARTS_OVER})
        if ends_part(self.part, event):
            yield from self._end(event)

    def completion(self) -> dict[str, Any]:
        """The whole completion."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": self._text,
            "refusal": None,
            "annotations": self._annotations,
        }
        if self._reasoning:
            message["reasoning_content"] = "\n".join(self._reasoning)
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": self._finish_reason,
        }
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": self._usage,
            "bos": self._bos,
        }

    def usage_chunk(self) -> dict[str, Any]:
        """The chunk behind the last one, if usage was asked for."""
        return {
            **self._head("chat.completion.chunk"),
            "choices": [],
            "usage": self._usage,
        }

    def _end(self, event: RunEvent) -> Iterator[dict[str, Any]]:
        if event.HasField("approval_requested"):
            approval = event.approval_requested.approval
            self._text = shown_approval(approval)
            self._bos["approval_id"] = approval.approval_id
        else:
            outcome = event.run_finished.response
            self._text = answer_text(outcome, self.public_url)
            self._annotations = [
                _nested(each) for each in annotations_of(self._text, outcome.sources)
            ]
            self._usage = chat_usage_of(outcome.metadata.usage)
            self._bos["status"] = RunStatus.Name(outcome.status).removeprefix("RUN_STATUS_")
            self._bos["outcome"] = outcome_name(outcome.outcome)
            if outcome.outcome == Outcome.OUTCOME_CUT_OFF:
                self._finish_reason = "length"
            if outcome.error.type:
                self._bos["error_type"] = outcome.error.type
            if outcome.metadata.conversation_id:
                self._bos["conversation_id"] = outcome.metadata.conversation_id
        rest = self._text
        if self._text.startswith(self._said):
            rest = self._text[len(self._said) :]
        elif self._said:
            yield self._chunk({"content": _STARTS_OVER})
        if rest:
            yield self._add(rest)
        last = {"annotations": self._annotations} if self._annotations else {}
        yield {**self._chunk(last, self._finish_reason), "bos": self._bos}

    def _add(self, text: str) -> dict[str, Any]:
        self._said += text
        return self._chunk({"content": text})

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.part.completion_id,
            "object": kind,
            "created": self._created,
            "model": self.model,
        }


def _nested(annotation: dict[str, Any]) -> dict[str, Any]:
    kind = annotation["type"]
    return {"type": kind, kind: {key: annotation[key] for key in annotation if key != "type"}}
