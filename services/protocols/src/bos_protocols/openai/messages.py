"""Lists of messages: what is asked, and what was said before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bos_errors import InvalidArgument

MAX_MESSAGES = 512
"""Messages of one request."""
_EARLIER_MESSAGES = 20
_EARLIER_CHARS = 4_000
_SYSTEM = ("system", "developer")
_ROLES = (*_SYSTEM, "user", "assistant")
_TEXTS = ("text", "input_text", "output_text", "refusal")


@dataclass(frozen=True, slots=True)
class Message:
    """One message."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Talk:
    """A list of messages, taken apart."""

    question: str
    """The user's messages behind the last one of the assistant."""
    system_prompt: str = ""
    earlier: list[Message] = field(default_factory=list)
    """What was said before that."""

    @property
    def replied_to(self) -> str:
        """The assistant's message that the question follows; empty if there is none."""
        return self.earlier[-1].text.strip() if self.earlier else ""

    @property
    def questions(self) -> set[str]:
        """What the user said before, message by message and turn by turn."""
        said: set[str] = set()
        turn: list[str] = []
        for message in self.earlier:
            if message.role == "user":
                turn.append(message.text)
                said |= {message.text.strip(), _joined(turn)}
            else:
                turn = []
        return said

    def context(self) -> dict[str, Any]:
        """What was said before, as data for planner and agents: the client alone vouches for it."""
        last = [
            {"role": message.role, "text": message.text[:_EARLIER_CHARS]}
            for message in self.earlier[-_EARLIER_MESSAGES:]
        ]
        return {"earlier_messages": last} if last else {}


def talk_of(items: Sequence[Mapping[str, Any]], where: str, instructions: str = "") -> Talk:
    """Messages taken apart.

    Args:
        items: The messages.
        where: Field of the request that holds them.
        instructions: Of the request, beside those in the list.

    Raises:
        InvalidArgument: something is not understood; names the field.
    """
    if len(items) > MAX_MESSAGES:
        raise InvalidArgument.field(where, f"at most {MAX_MESSAGES} messages; leave out the oldest")
    system = [instructions] if instructions else []
    said: list[Message] = []
    for at, item in enumerate(items):
        message = _message(item, f"{where}[{at}]")
        if message is None or not message.text.strip():
            continue
        if message.role in _SYSTEM:
            system.append(message.text)
        else:
            said.append(message)
    behind = len(said)
    while behind and said[behind - 1].role == "user":
        behind -= 1
    question = _joined([message.text for message in said[behind:]])
    if not question:
        raise InvalidArgument.field(where, "the last message must be one of the user with text")
    return Talk(question, _joined(system), said[:behind])


def _message(item: Mapping[str, Any], where: str) -> Message | None:
    """The message; None for what only repeats an earlier answer's reasoning."""
    kind = item.get("type", "message")
    if kind == "reasoning":
        return None
    if kind != "message":
        raise InvalidArgument.field(
            f"{where}.type", "only messages with text are understood; tools run inside Bos"
        )
    role = item.get("role")
    if role not in _ROLES:
        raise InvalidArgument.field(f"{where}.role", f"must be one of {', '.join(_ROLES)}")
    return Message(role, _text(item.get("content"), f"{where}.content"))


def _text(content: Any, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise InvalidArgument.field(where, "must be a text or a list of parts")
    texts: list[str] = []
    for at, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in _TEXTS:
            raise InvalidArgument.field(
                f"{where}[{at}]",
                "only parts with text are understood; documents are uploaded to /v1/documents",
            )
        text = part.get("refusal" if kind == "refusal" else "text")
        if not isinstance(text, str):
            raise InvalidArgument.field(f"{where}[{at}].text", "must be a text")
        texts.append(text)
    return "\n".join(texts)


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(text.strip() for text in texts if text.strip())
