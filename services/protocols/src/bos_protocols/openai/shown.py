"""Parts of answers in the form of OpenAI's API: texts, citations, reasoning, usage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bos.common.v1 import Source, SourceType, Usage
from bos.gateway.v1 import Approval, ApprovalStatus, RunEvent
from bos_client.text import one_line, step_end_text
from bos_conversation import approval_text
from bos_errors import FailedPrecondition

MAX_CITATIONS = 500
_MARK = re.compile(r"\[(\d{1,4})\]")
_MAX_TASK_CHARS = 300
_FILES = (SourceType.SOURCE_TYPE_DOCUMENT, SourceType.SOURCE_TYPE_MAIL)


def shown_approval(approval: Approval) -> str:
    """What waits for a decision; where that cannot be shown, where it can be decided."""
    try:
        return approval_text(approval)
    except FailedPrecondition as error:
        return error.message


def annotations_of(text: str, sources: Sequence[Source]) -> list[dict[str, Any]]:
    """A citation for each mark ``[n]`` whose source is a page or a file.

    Args:
        text: The answer; positions are code points.
        sources: Of the answer; ``[n]`` is the n-th.
    """
    found: list[dict[str, Any]] = []
    for mark in _MARK.finditer(text):
        at = int(mark[1])
        if not 1 <= at <= len(sources) or len(found) == MAX_CITATIONS:
            continue
        source = sources[at - 1]
        place = {"start_index": mark.start(), "end_index": mark.end()}
        if source.uri.startswith(("https://", "http://")):
            title = one_line(source.title or source.uri)
            found.append({"type": "url_citation", "url": source.uri, "title": title, **place})
        elif source.type in _FILES:
            name = one_line(source.title)
            file_id = source.reference or name
            kind = {"type": "file_citation", "file_id": file_id, "filename": name}
            found.append({**kind, "index": mark.start(), **place})
    return found


def reasoning_of(event: RunEvent) -> str:
    """What an event says about how the answer comes about; empty for nothing."""
    match event.WhichOneof("event"):
        case "planned":
            steps = event.planned.plan.steps
            lines = [f"{step.agent}: {one_line(step.task, _MAX_TASK_CHARS)}" for step in steps]
            return "\n".join(["Plan:", *(f"{at}. {line}" for at, line in enumerate(lines, 1))])
        case "step_finished":
            result = event.step_finished.result
            outcome = step_end_text(result)
            said = f": {one_line(result.error.message)}" if result.HasField("error") else ""
            return f"Step {event.step_finished.step_id}: {outcome}{said}"
        case "approval_resolved":
            name = ApprovalStatus.Name(event.approval_resolved.approval.status)
            outcome = name.removeprefix("APPROVAL_STATUS_").replace("_", " ").lower()
            return f"The action: {outcome}"
        case "revision_started":
            return "The plan is being revised."
    return ""


def usage_of(usage: Usage) -> dict[str, Any]:
    """Model tokens as Responses names them."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": 0,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def chat_usage_of(usage: Usage) -> dict[str, Any]:
    """Model tokens as chat completions name them."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens},
    }
