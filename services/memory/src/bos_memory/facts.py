"""Facts about a user: validation, storage format, and merging of new findings. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, Field

from bos.common.v1 import CriticalFacts, LongTermMemory, UserPreferences
from bos_errors import FieldViolation, InvalidArgument
from bos_memory.texts import on_one_line

MAX_FACT_CHARS = 200
MAX_PROJECTS = 10
_FACTS = ("user_name", "company_name", "job_title")
_PREFERENCES = ("tone", "detail_level", "language")


class FoundFacts(BaseModel):
    """Facts that a question states about its author."""

    user_name: str | None = Field(default=None, description="How the user is called")
    company_name: str | None = Field(default=None, description="Where the user works")
    job_title: str | None = Field(default=None, description="What the user does there")
    recent_projects: list[str] = Field(
        default_factory=list, description="What the user says to be working on"
    )


class FoundPreferences(BaseModel):
    """Preferences for all answers that a question states."""

    tone: str | None = Field(default=None, description="Such as casual or formal")
    detail_level: str | None = Field(default=None, description="Such as short or detailed")
    language: str | None = Field(default=None, description="BCP 47 tag, such as en")


class PersonalFacts(BaseModel):
    """The model's reply: lasting facts about the author, and preferences for all answers."""

    # First, although it is the verdict: few questions state a fact, and a model that has to begin
    # with a name tends to invent one.
    found: bool = Field(description="Whether the question states any such fact or wish")
    critical_facts: FoundFacts = Field(default_factory=FoundFacts)
    preferences: FoundPreferences = Field(default_factory=FoundPreferences)


def joined(known: LongTermMemory, found: PersonalFacts, *, tainted: bool) -> LongTermMemory:
    """Merge new findings into known facts; equal to ``known`` if none is new.

    A new value replaces the old one; projects are added, and the last ten are kept. Values that
    differ in letter case only are not changed. A new ``tainted`` finding taints all facts until the
    user confirms them.
    """
    result = LongTermMemory()
    result.CopyFrom(known)
    if not found.found:
        return result
    for names, old, new in (
        (_FACTS, result.critical, found.critical_facts),
        (_PREFERENCES, result.preferences, found.preferences),
    ):
        for name in names:
            value = on_one_line(getattr(new, name) or "", MAX_FACT_CHARS)
            if value and value.casefold() != getattr(old, name).casefold():
                setattr(old, name, value)
    projects = _distinct([*known.critical.recent_projects, *found.critical_facts.recent_projects])
    del result.critical.recent_projects[:]
    result.critical.recent_projects.extend(projects[-MAX_PROJECTS:])
    result.tainted |= tainted
    return result if as_stored(result) != as_stored(known) else known


def checked(memory: LongTermMemory) -> LongTermMemory:
    """Normalise and validate facts that a user edited.

    Raises:
        InvalidArgument: fields are too long; names them.
    """
    violations = []
    for part, names in (("critical", _FACTS), ("preferences", _PREFERENCES)):
        violations += [
            FieldViolation(f"memory.{part}.{name}", f"has more than {MAX_FACT_CHARS} characters")
            for name in names
            if len(getattr(getattr(memory, part), name)) > MAX_FACT_CHARS
        ]
    projects = memory.critical.recent_projects
    if len(projects) > MAX_PROJECTS or any(len(each) > MAX_FACT_CHARS for each in projects):
        violations.append(
            FieldViolation(
                "memory.critical.recent_projects",
                f"may hold {MAX_PROJECTS} projects of {MAX_FACT_CHARS} characters each",
            )
        )
    if violations:
        raise InvalidArgument("What is to be remembered is too long.", violations=violations)
    kept = from_stored(*as_stored(memory))
    kept.tainted = memory.tainted
    return kept


def as_stored(memory: LongTermMemory) -> tuple[dict[str, object], dict[str, object]]:
    """Critical facts and preferences as JSON objects, without empty fields."""
    facts: dict[str, object] = _filled(memory.critical, _FACTS)
    if projects := _distinct(memory.critical.recent_projects):
        facts["recent_projects"] = projects
    return facts, _filled(memory.preferences, _PREFERENCES)


def from_stored(facts: dict[str, object], preferences: dict[str, object]) -> LongTermMemory:
    """The reverse of :func:`as_stored`; unknown keys are ignored."""
    projects = facts.get("recent_projects")
    memory = LongTermMemory()
    if facts:
        memory.critical.CopyFrom(
            CriticalFacts(
                **{name: str(facts.get(name, "")) for name in _FACTS},
                recent_projects=map(str, projects) if isinstance(projects, list) else (),
            )
        )
    if preferences:
        memory.preferences.CopyFrom(
            UserPreferences(**{name: str(preferences.get(name, "")) for name in _PREFERENCES})
        )
    return memory


def _filled(message: CriticalFacts | UserPreferences, names: Iterable[str]) -> dict[str, object]:
    lines = {name: on_one_line(getattr(message, name), MAX_FACT_CHARS) for name in names}
    return {name: line for name, line in lines.items() if line}


def _distinct(projects: Iterable[str]) -> list[str]:
    """Remove empty texts and case-insensitive duplicates; the first spelling is kept."""
    found: dict[str, str] = {}
    for each in projects:
        line = on_one_line(each, MAX_FACT_CHARS)
        if line:
            found.setdefault(line.casefold(), line)
    return list(found.values())
