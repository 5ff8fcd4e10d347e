"""Questions back to the user, asked of the person where the client can pass them on."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from mcp.types import InputRequiredResult

from bos_client.text import one_line
from bos_conversation import clarification_text
from bos_conversation.mcp.persons import ask_person, reply_to

if TYPE_CHECKING:
    from mcp.server.mcpserver import Context
    from mcp.types import ElicitResult

    from bos.common.v1 import Clarification
    from bos.gateway.v1 import Run

_PREFIX = "clarification:"
_OTHER = "other"
_MAX_OPTION_CHARS = 500
_MAX_REPLY_CHARS = 8000


async def reply_of_person(context: Context[Any, Any], run: Run) -> str | InputRequiredResult | None:
    """The person's reply to the questions of a run; or how it is asked for; or None for none."""
    asked = run.response.clarification
    reply = await ask_person(
        context, _PREFIX + run.run_id, clarification_text(asked), _schema(asked)
    )
    if reply is None or isinstance(reply, InputRequiredResult):
        return reply
    return _text(asked, reply) or None


def clarified_run(context: Context[Any, Any]) -> str:
    """The run to whose questions the client sends a reply; empty if to none."""
    for key in context.input_responses or {}:
        if key.startswith(_PREFIX) and reply_to(context, key) is not None:
            return key.removeprefix(_PREFIX)
    return ""


def request_id_of(run_id: str, reply: str) -> str:
    """The same for the same reply to the same run, so that repeating a call asks nothing twice."""
    digest = hashlib.sha256(reply.encode()).hexdigest()
    return f"mcp-{run_id[:40]}-{digest[:32]}"


def _schema(asked: Clarification) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for number, question in enumerate(asked.questions, start=1):
        field = {"type": "string", "title": one_line(question.question, _MAX_OPTION_CHARS)}
        options = [one_line(option, _MAX_OPTION_CHARS) for option in question.options]
        if options:
            field["enum"] = list(dict.fromkeys(options))  # type: ignore[assignment]
        else:
            field["maxLength"] = _MAX_REPLY_CHARS  # type: ignore[assignment]
        fields[_name(number)] = field
    fields[_OTHER] = {
        "type": "string",
        "title": "In your own words",
        "maxLength": _MAX_REPLY_CHARS,
    }
    return {"type": "object", "properties": fields}


def _text(asked: Clarification, reply: ElicitResult) -> str:
    content = reply.content if reply.action == "accept" and reply.content else {}
    lines: list[str] = []
    for number, question in enumerate(asked.questions, start=1):
        answer = _answer(content.get(_name(number)))
        if answer and len(asked.questions) > 1:
            answer = f"{one_line(question.question, _MAX_OPTION_CHARS)} {answer}"
        lines.append(answer)
    lines.append(_answer(content.get(_OTHER)))
    return "\n".join(line for line in lines if line)


def _answer(given: Any) -> str:
    return given.strip()[:_MAX_REPLY_CHARS] if isinstance(given, str) else ""


def _name(number: int) -> str:
    return f"answer_{number}"
