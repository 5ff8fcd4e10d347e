"""Normalises a request: agent names, bounds, date keys. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from google.protobuf.struct_pb2 import Struct

from bos.agent.v1 import AgentCard
from bos.gateway.v1 import AgentRequest
from bos_errors import FieldViolation, InvalidArgument
from bos_gateway.admission.context_secrets import DeclaredKeys, without_secrets
from bos_gateway.request_calendar import Calendar, normalise_calendar
from bos_plans import KNOWN_AGENTS, OutOfBounds, canonical_name, extent

_TEXTS = (
    *("question", "request_id", "conversation_id", "continues_run_id", "system_prompt"),
    *("backend", "model"),
)


def normalise(
    request: AgentRequest,
    cards: Sequence[AgentCard],
    *,
    max_context_bytes: int,
    configured: Iterable[str] = (),
    models: Collection[str] = (),
) -> AgentRequest:
    """The request with canonical agent names and calendar, or the reasons why it cannot be run.

    Agents are found by name or alias, case-insensitively, as those of plans are; empty names and
    repetitions are dropped. A name that Bos knows is none to refuse where its agent is absent: the
    planner, which gets no such card, lists it as unavailable.

    Args:
        request: As the client sent it.
        cards: The agents that answered.
        max_context_bytes: Largest context.
        configured: Names of agents that exist, whether or not they have answered yet.
        models: Models that a question may choose.

    Raises:
        InvalidArgument: names every unusable field and its fix.
    """
    agents = {name: AgentCard(name=name) for name in configured} | {c.name: c for c in cards}
    violations: list[FieldViolation] = []
    if not request.question.strip():
        violations.append(FieldViolation("request.question", "must not be empty"))
    if problem := _context_problem(request.context, max_context_bytes):
        violations.append(FieldViolation("request.context", problem))
    normalised = AgentRequest()
    normalised.CopyFrom(request)
    violations += normalise_calendar(normalised.context)
    if problem := _model_problem(request.model, models):
        violations.append(FieldViolation("request.model", problem))
    for field in ("prefer_agents", "disable_agents"):
        known, unknown = _agent_names(getattr(request, field), agents)
        getattr(normalised, field)[:] = known
        violations += [
            FieldViolation(
                f"request.{field}",
                f'"{name}" is not an agent; the agents are {", ".join(sorted(agents))}',
            )
            for name in unknown
        ]
    _refuse(violations)
    return normalised


def _agent_names(
    written: Iterable[str], agents: Mapping[str, AgentCard]
) -> tuple[list[str], list[str]]:
    """Unique canonical names of agents, absent ones that Bos knows included, and unknown names."""
    absent = {name: card for name, card in KNOWN_AGENTS.items() if name not in agents}
    known: dict[str, None] = {}
    unknown: dict[str, None] = {}
    for name in filter(None, (raw.strip() for raw in written)):
        # What is here comes first: it may go by the alias of an agent that is not.
        found = canonical_name(name, agents) or canonical_name(name, absent)
        (unknown if found is None else known)[found or name] = None
    return list(known), list(unknown)


def check_texts(request: AgentRequest) -> None:
    """Refuse texts that PostgreSQL cannot hold.

    Raises:
        InvalidArgument: names every such field.
    """
    _refuse(
        [
            FieldViolation(f"request.{field}", "must not contain the character U+0000; remove it")
            for field in _TEXTS
            if "\0" in getattr(request, field)
        ]
    )


def check_context(request: AgentRequest, max_bytes: int) -> None:
    """Refuse a context that is too large to be searched for credentials.

    Raises:
        InvalidArgument: says what is wrong with it.
    """
    if problem := _context_problem(request.context, max_bytes):
        _refuse([FieldViolation("request.context", problem)])


def attach_temporal_context(context: Struct, now: datetime, calendar: Calendar) -> None:
    """Fill in the temporal keys that the caller left out, in place.

    The boundaries follow the effective ``current_date``, which may be the caller's own, and that
    the ``time_zone``, which may be, too.
    """
    zone = context.fields["time_zone"].string_value if "time_zone" in context else ""
    today = now.astimezone(ZoneInfo(zone or calendar.time_zone)).date()
    date = context["current_date"] if "current_date" in context else today.isoformat()
    defaults = {
        **calendar.context(),
        "current_datetime_utc": now.isoformat(),
        "current_date": date,
        "current_date_start_hour": f"{date} 00",
        "current_date_end_hour": f"{date} 23",
    }
    context.update({key: value for key, value in defaults.items() if key not in context})


def digest(request: AgentRequest, keys: DeclaredKeys) -> bytes:
    """Identifies a request's content: equal for equal requests.

    Neither the request id counts nor credentials: a repetition may carry a fresh token, and a hash
    of a secret does not belong into a database.
    """
    copy = AgentRequest()
    copy.CopyFrom(request)
    copy.request_id = ""
    without_secrets(copy.context, keys)
    return hashlib.sha256(copy.SerializeToString(deterministic=True)).digest()


def _model_problem(model: str, models: Collection[str]) -> str:
    """Why a question may not choose ``model``, with the models on offer; empty if it may."""
    if not model or model in models:
        return ""
    if not models:
        return "cannot be chosen here, as no models are offered; leave it out"
    return f'"{model}" is not offered; leave it out, or choose one of {", ".join(models)}'


def _context_problem(context: Struct, max_bytes: int) -> str:
    """Problem of a context with its remedy; empty if there is none."""
    if (size := context.ByteSize()) > max_bytes:
        limit = f"at most {max_bytes} are allowed"
        return f"holds {size} bytes; {limit}. Upload large inputs as documents."
    try:
        extent(context.fields.values())
    except OutOfBounds as error:
        return f"{error}. Send it flatter, or as text."
    return ""


def _refuse(violations: Sequence[FieldViolation]) -> None:
    """Refuse a request that has violations, naming all of them."""
    if violations:
        text = "; ".join(f"{v.field}: {v.description}" for v in violations)
        raise InvalidArgument(f"The request cannot be run: {text}", violations)
