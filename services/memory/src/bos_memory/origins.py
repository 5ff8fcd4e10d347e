"""Where facts came from: kept beside them, shown with each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bos.common.v1 import LongTermMemory
from bos.memory.v1 import Fact, FactSource
from bos_memory.facts import as_stored

_QUESTION, _USER = "question", "user"
_SOURCES = {_QUESTION: FactSource.FACT_SOURCE_QUESTION, _USER: FactSource.FACT_SOURCE_USER}

Origins = dict[str, dict[str, Any]]
"""By key of a fact: ``source``, ``at`` (ISO 8601), ``run_id``, ``tainted``; as stored in JSON."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The question that facts were found in."""

    run_id: str
    """Its run; empty if the gateway does not say it."""
    at: datetime
    tainted: bool
    """Whether it may hold content of others."""


def after_question(
    known: LongTermMemory, memory: LongTermMemory, origins: Origins, asked: Asked
) -> Origins:
    """Origins of ``memory``, which is ``known`` with what was found in a question."""
    here = {"source": _QUESTION, "at": _written(asked.at), "run_id": asked.run_id}
    return _kept(known, memory, origins, {**here, "tainted": asked.tainted})


def after_correction(
    known: LongTermMemory, memory: LongTermMemory, origins: Origins, now: datetime
) -> Origins:
    """Origins of ``memory``, which the user wrote in the place of ``known``.

    What is unchanged keeps its origin. Without taint the user has confirmed all of it.
    """
    kept = _kept(known, memory, origins, {"source": _USER, "at": _written(now), "tainted": False})
    if memory.tainted:
        return kept
    return {key: {**origin, "tainted": False} for key, origin in kept.items()}


def facts_of(memory: LongTermMemory, origins: Origins) -> list[Fact]:
    """All facts, each with its origin. Those of unknown origin are as tainted as the memory is."""
    found = []
    for key, (field, value) in _entries(memory).items():
        origin = origins.get(key, {})
        fact = Fact(
            field=field,
            value=value,
            source=_SOURCES.get(origin.get("source", ""), FactSource.FACT_SOURCE_UNSPECIFIED),
            run_id=origin.get("run_id", ""),
            tainted=memory.tainted and bool(origin.get("tainted", True)),
        )
        if at := origin.get("at"):
            fact.learn_time.FromDatetime(datetime.fromisoformat(at))
        found.append(fact)
    return found


def _kept(
    known: LongTermMemory, memory: LongTermMemory, origins: Origins, new: dict[str, Any]
) -> Origins:
    before = _entries(known)
    return {
        key: origin
        for key, entry in _entries(memory).items()
        if (origin := origins.get(key) if before.get(key) == entry else new) is not None
    }


def _entries(memory: LongTermMemory) -> Mapping[str, tuple[str, str]]:
    """Field and value of each fact, by its key, in the order of the fields."""
    return dict(_walk(memory))


def _walk(memory: LongTermMemory) -> Iterator[tuple[str, tuple[str, str]]]:
    for part in as_stored(memory):
        for field, value in part.items():
            if isinstance(value, list):
                yield from ((f"{field}:{each.casefold()}", (field, each)) for each in value)
            else:
                yield field, (field, str(value))


def _written(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
