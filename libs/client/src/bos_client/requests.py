"""Building requests from plain Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict
from uuid import uuid4

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.struct_pb2 import Struct

from bos.gateway.v1 import AgentRequest
from bos_errors import FieldViolation, InvalidArgument


class AskOptions(TypedDict, total=False):
    """Options of a question; see ``bos.gateway.v1.AgentRequest``."""

    context: Mapping[str, Any]
    """Free-form JSON data for planner and agents."""
    prefer_agents: Sequence[str]
    disable_agents: Sequence[str]
    max_turns: int
    include_data: bool
    """Tables in the response; True unless set."""
    trace: bool
    """The trace in the response."""
    system_prompt: str
    """For composing the answer."""
    tainted: bool
    """Question, context or system prompt hold text that others wrote, such as a page or a mail, or
    a follow-up that a tainted response suggested."""
    conversation_id: str
    continues_run_id: str
    """Run that ended with clarifying questions; the question is the reply to them."""
    request_id: str
    """Made by the client unless given; asking again with the same one returns the same run."""
    max_rows: int
    """Most rows of a table that an agent queries or returns; services may allow fewer."""
    max_columns: int
    """Most columns of such a table, likewise."""
    backend: str
    """Name of the configured database to ask; empty for that of the agent's settings."""
    model: str
    """Model that answers, one of those that ``BosClient.access`` lists; empty for those that the
    services are set to use."""
    timeout_s: float
    """Time the run may take, in seconds; the service may allow less."""


def agent_request(question: str, options: AskOptions) -> AgentRequest:
    """The message for ``question``, always with a request id.

    Raises:
        InvalidArgument: an option is not of its type; names the option.
    """
    fields: dict[str, Any] = dict(options)
    context = fields.pop("context", None)
    timeout_s = fields.pop("timeout_s", None)
    fields.setdefault("request_id", str(uuid4()))
    try:
        request = AgentRequest(question=question, **fields)
    except (TypeError, ValueError) as error:
        raise _wrong("request", f"an option is unknown or of a wrong type: {error}") from error
    if context:
        request.context.CopyFrom(to_struct(context))
    if timeout_s is not None:
        if not 0 < timeout_s < 1e9:
            raise _wrong("timeout_s", "must be a positive number of seconds")
        request.timeout.FromMilliseconds(round(timeout_s * 1000))
    return request


def to_struct(context: Mapping[str, Any]) -> Struct:
    """``context`` as a message.

    Raises:
        InvalidArgument: it holds something that JSON cannot express.
    """
    struct = Struct()
    try:
        ParseDict(dict(context), struct)
    except (ParseError, TypeError, ValueError) as error:
        raise _wrong(
            "context", "must map texts to JSON values: texts, numbers, booleans, lists, maps"
        ) from error
    return struct


def _wrong(field: str, description: str) -> InvalidArgument:
    return InvalidArgument(
        f"{field}: {description}", violations=[FieldViolation(field, description)]
    )
