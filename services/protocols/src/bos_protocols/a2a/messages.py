"""What a client's message says: a question with its options, or a decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from a2a.types import a2a_pb2 as a2a
from a2a.utils.errors import ContentTypeNotSupportedError, PushNotificationNotSupportedError
from google.protobuf.json_format import MessageToDict

from bos_conversation import Decision, decision_of
from bos_protocols.a2a.failures import invalid

if TYPE_CHECKING:
    from bos_client import AskOptions

TEXT_MODE = "text/plain"
JSON_MODE = "application/json"
_MAX_PARTS = 64
_MAX_ID_CHARS = 128
_MAX_APPROVAL_ID_CHARS = 64
_ANY_MODE = "*/*"
_DECISIONS = {"approve": True, "deny": False}


@dataclass(frozen=True, slots=True)
class Said:
    """The content of a message."""

    text: str
    data: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class NamedDecision:
    """A decision, and the id of what it is about; empty where the message does not say."""

    approval_id: str
    decision: Decision


def said(message: a2a.Message) -> Said:
    """The texts and the data of a message.

    Raises:
        ContentTypeNotSupportedError: it holds a file.
        InvalidParamsError: a field is wrong; names it.
    """
    if message.role != a2a.ROLE_USER:
        raise invalid("message.role", "must be ROLE_USER")
    if len(message.parts) > _MAX_PARTS:
        raise invalid("message.parts", f"must be {_MAX_PARTS} at most")
    for name in ("message_id", "context_id"):
        if len(getattr(message, name)) > _MAX_ID_CHARS:
            raise invalid(f"message.{name}", f"must have {_MAX_ID_CHARS} characters at most")
    texts: list[str] = []
    data: list[Any] = []
    for at, part in enumerate(message.parts):
        kind = part.WhichOneof("content")
        if kind == "text":
            texts.append(part.text)
        elif kind == "data":
            data.append(MessageToDict(part.data))
        elif kind is None:
            raise invalid(f"message.parts[{at}]", "must have text or data")
        else:
            raise ContentTypeNotSupportedError(
                f"message.parts[{at}]: files are not taken with a message; have them indexed as "
                "documents, and ask about them."
            )
    return Said("\n\n".join(text for text in texts if text.strip()), tuple(data))


def options_of(params: a2a.SendMessageRequest, content: Said) -> AskOptions:
    """How the question of a message is to be asked.

    Raises:
        ContentTypeNotSupportedError: the client takes neither text nor JSON.
        InvalidParamsError: there is no question.
        PushNotificationNotSupportedError: it wants push notifications.
    """
    message, configuration = params.message, params.configuration
    if configuration.HasField("task_push_notification_config"):
        raise PushNotificationNotSupportedError(PUSH_REFUSED)
    if not content.text:
        raise invalid("message.parts", "must say in a text what is asked")
    modes = set(configuration.accepted_output_modes)
    if modes and not modes & {TEXT_MODE, JSON_MODE, _ANY_MODE}:
        raise ContentTypeNotSupportedError(f"Answers are {TEXT_MODE} and {JSON_MODE}.")
    options: AskOptions = {
        "request_id": message.message_id,
        "conversation_id": message.context_id,
        "include_data": not modes or bool(modes & {JSON_MODE, _ANY_MODE}),
        "tainted": MessageToDict(message.metadata).get("tainted") is True,
    }
    if content.data:
        options["context"] = {"data": list(content.data)}
    return options


def decision_in(content: Said) -> NamedDecision:
    """What a message decides: its data, or else its words.

    ``{"approval_id": …, "decision": "approve" | "deny", "instructions": …}``, or one word, which
    the id may follow.

    Raises:
        InvalidParamsError: data that is no decision.
    """
    for one in content.data:
        if not isinstance(one, dict) or one.get("decision") not in _DECISIONS:
            raise invalid("message.parts", 'data of a reply must have "decision": approve or deny')
        instructions = one.get("instructions") or ""
        approval_id = one.get("approval_id") or ""
        if not isinstance(instructions, str) or not isinstance(approval_id, str):
            raise invalid("message.parts", "approval_id and instructions must be texts")
        approved = _DECISIONS[one["decision"]]
        return NamedDecision(approval_id, Decision(approved, instructions if approved else ""))
    word, _, rest = content.text.strip().partition(" ")
    named = decision_of(word)
    approval_id = rest.strip()
    if rest and not named.instructions and _is_id(approval_id):
        return NamedDecision(approval_id, named)
    return NamedDecision("", decision_of(content.text))


def _is_id(text: str) -> bool:
    """Whether it looks like the id of an approval, which no instruction does."""
    plain = text.replace("-", "")
    return (
        0 < len(text) <= _MAX_APPROVAL_ID_CHARS and plain.isalnum() and any(map(str.isdigit, plain))
    )


PUSH_REFUSED = (
    "There are no push notifications; subscribe to the task, or have Bos call you by a webhook."
)
