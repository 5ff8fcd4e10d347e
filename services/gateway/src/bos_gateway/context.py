"""A raw request made fit to be run: names, bounds, temporal keys, credentials. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from google.protobuf.json_format import MessageToJson

from bos.gateway.v1 import AgentRequest
from bos_chassis.errors import FieldViolation, InvalidArgument
from bos_plans import OutOfBounds, extent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from google.protobuf.struct_pb2 import Struct, Value

    from bos.agent.v1 import AgentCard

# Keys that hold credentials, whatever the cards say. Headers may carry a token.
SECRET_KEYS = frozenset(
    {
        "api_headers",
        "api_bearer_token",
        "firebase_id_token",
        "api_token_file",
        "firebase_web_api_key",
        "firebase_email",
        "firebase_password",
    }
)

_SECRET_WORDS = re.compile(
    r"token|secret|passw|api_?key|authorization|credential|private_?key", re.IGNORECASE
)
_TEXTS = ("question", "request_id", "conversation_id", "continues_run_id", "system_prompt")


def normalise(
    request: AgentRequest,
    cards: Sequence[AgentCard],
    *,
    max_context_bytes: int,
    configured: Iterable[str] = (),
) -> AgentRequest:
    """The request with canonical agent names, or the reasons why it cannot be run.

    Names are lower-cased, aliases replaced, empty ones and repetitions dropped.

    Args:
        request: As the client sent it.
        cards: The agents that answered.
        max_context_bytes: Largest context.
        configured: Names of agents that exist, whether or not they have answered yet.

    Raises:
        InvalidArgument: names every unusable field and its fix.
    """
    canonical = {name: name for name in configured}
    canonical |= {alias.lower(): c.name for c in cards for alias in (c.name, *c.aliases)}
    violations: list[FieldViolation] = []
    if not request.question.strip():
        violations.append(FieldViolation("request.question", "must not be empty"))
    size = request.context.ByteSize()
    if size > max_context_bytes:
        limit = f"holds {size} bytes; at most {max_context_bytes} are allowed"
        violations.append(
            FieldViolation("request.context", f"{limit}. Upload large inputs as documents.")
        )
    else:
        try:
            extent(request.context.fields.values())
        except OutOfBounds as error:
            violations.append(
                FieldViolation("request.context", f"{error}. Send it flatter, or as text.")
            )
    names: dict[str, list[str]] = {}
    for field in ("prefer_agents", "disable_agents"):
        names[field], unknown = _canonical(getattr(request, field), canonical)
        violations += [
            FieldViolation(
                f"request.{field}",
                f'"{name}" is not an agent; the agents are {", ".join(sorted(set(canonical)))}',
            )
            for name in unknown
        ]
    if violations:
        text = "; ".join(f"{v.field}: {v.description}" for v in violations)
        raise InvalidArgument(f"The request cannot be run: {text}", violations)
    normalised = AgentRequest()
    normalised.CopyFrom(request)
    for field, found in names.items():
        del getattr(normalised, field)[:]
        getattr(normalised, field).extend(found)
    return normalised


def check_texts(request: AgentRequest) -> None:
    """Refuse texts that PostgreSQL cannot hold.

    Raises:
        InvalidArgument: names every such field.
    """
    violations = [
        FieldViolation(f"request.{field}", "must not contain the character U+0000; remove it")
        for field in _TEXTS
        if "\0" in getattr(request, field)
    ]
    if violations:
        text = "; ".join(f"{v.field}: {v.description}" for v in violations)
        raise InvalidArgument(f"The request cannot be run: {text}", violations)


def attach_temporal_context(context: Struct, now: datetime) -> None:
    """Fill in the temporal keys that the caller left out, in place.

    The boundaries follow the effective ``current_date``, which may be the caller's own.
    """
    if "current_datetime_utc" not in context:
        context["current_datetime_utc"] = now.isoformat()
    if "current_date" not in context:
        context["current_date"] = now.date().isoformat()
    date = context["current_date"]
    if "current_date_start_hour" not in context:
        context["current_date_start_hour"] = f"{date} 00"
    if "current_date_end_hour" not in context:
        context["current_date_end_hour"] = f"{date} 23"


def take_secrets(context: Struct, cards: Iterable[AgentCard]) -> dict[str, str]:
    """Remove credentials from ``context`` and return them, so that they never reach the log."""
    declared = {key for card in cards for key in card.secret_context_keys}
    found = sorted(
        key for key in context.fields if key in declared or key in SECRET_KEYS or looks_secret(key)
    )
    secrets: dict[str, str] = {}
    for key in found:
        value = context.fields[key]
        secrets[key] = value.string_value if value.HasField("string_value") else _text(value)
        del context.fields[key]
    return secrets


def of_use(secrets: Mapping[str, str], cards: Iterable[AgentCard]) -> dict[str, str]:
    """Those credentials that an agent declares; nobody would ever be given the others."""
    declared = {key for card in cards for key in card.secret_context_keys}
    return {key: value for key, value in secrets.items() if key in declared}


def looks_secret(key: str) -> bool:
    """Whether a key sounds like a credential: an agent that is away cannot declare its own."""
    return _SECRET_WORDS.search(key) is not None


def digest(request: AgentRequest) -> bytes:
    """Identifies a request's content: equal for equal requests.

    Neither the request id counts nor credentials: a repetition may carry a fresh token, and a hash
    of a secret does not belong into a database.
    """
    copy = AgentRequest()
    copy.CopyFrom(request)
    copy.request_id = ""
    for key in [k for k in copy.context.fields if k in SECRET_KEYS or looks_secret(k)]:
        del copy.context.fields[key]
    return hashlib.sha256(copy.SerializeToString(deterministic=True)).digest()


def _text(value: Value) -> str:
    return MessageToJson(value, indent=None)


def _canonical(names: Iterable[str], canonical: dict[str, str]) -> tuple[list[str], list[str]]:
    found: dict[str, None] = {}
    unknown: list[str] = []
    for raw in names:
        name = raw.strip().lower()
        if not name:
            continue
        if name in canonical:
            found[canonical[name]] = None
        else:
            unknown.append(raw.strip())
    return list(found), unknown
