"""Verified queries as examples for a question: which of those that a step was given are shown.

Their texts are not believed: another user may have written them, and the database may have changed
since. The guard reads each again by what may be read now, and what is shown is its own text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from bos.agent.v1 import QueryExample
from bos_agentkit.ranking import words
from bos_sql.database.metadata import Overview
from bos_sql.steps.guard import QueryGuard

Outcome = Literal["shown", "other_database", "refused", "unlike", "no_room"]
OUTCOMES: Final[tuple[Outcome, ...]] = (
    "shown",
    "other_database",
    "refused",
    "unlike",
    "no_room",
)
_MAX_GIVEN: Final = 16
_MAX_QUESTION_CHARS: Final = 500
_MAX_WORDS_CHARS: Final = 4_000
# The share of words, without those that every question has, below which two questions are unlike.
_LEAST_LIKENESS: Final = 0.3


@dataclass(frozen=True, slots=True)
class Example:
    """A verified query that may be shown."""

    query_id: str
    question: str
    sql: str
    """As the guard wrote it."""

    @property
    def text(self) -> str:
        """For a prompt."""
        return f"Question: {self.question}\nSQL: {self.sql}"


def chosen_examples(
    given: Iterable[QueryExample],
    asked: Iterable[str],
    overview: Overview,
    guard: QueryGuard,
    *,
    most: int,
    max_chars: int,
) -> tuple[list[Example], dict[str, Outcome]]:
    """Examples to show, the most alike first, and what became of each that was given, by id.

    Args:
        given: Verified queries, of any database.
        asked: What the step is asked, in one or more wordings; the one most alike counts.
        overview: The database that is asked, with the tables that may be read.
        guard: Of this database.
        most: Examples to show.
        max_chars: Size of their texts together.
    """
    outcomes: dict[str, Outcome] = {}
    wordings, alike = [frozenset(words(text)) for text in asked], []
    for place, each in enumerate(list(given)[:_MAX_GIVEN]):
        own = frozenset(words(each.question[:_MAX_WORDS_CHARS]))
        likeness = max((_likeness(wording, own) for wording in wordings), default=0.0)
        if each.query.database != overview.database or each.query.dialect != overview.dialect:
            outcomes[each.query_id] = "other_database"
        elif likeness < _LEAST_LIKENESS:
            outcomes[each.query_id] = "unlike"
        else:
            alike.append((-likeness, place, each))
    shown: list[Example] = []
    room = max_chars
    for _, _, each in sorted(alike, key=lambda found: found[:2]):
        outcome: Outcome = "no_room"
        if len(shown) < most and len(each.query.sql) <= room:
            verdict = guard.verdict(overview.dialect, each.query.sql)
            example = Example(each.query_id, _on_one_line(each.question), verdict.safe_sql)
            if not verdict.is_safe:
                outcome = "refused"
            elif any(example.sql == other.sql for other in shown):
                outcome = "unlike"  # says nothing that is not shown already
            elif len(example.text) <= room:
                room -= len(example.text)
                shown.append(example)
                outcome = "shown"
        outcomes[each.query_id] = outcome
    return shown, outcomes


def shown_text(examples: Sequence[Example]) -> str:
    """The examples in one text."""
    return "\n\n".join(each.text for each in examples)


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """Dice's coefficient of two sets of words: 0 to 1."""
    total = len(one) + len(other)
    return 2 * len(one & other) / total if total else 0.0


def _on_one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_QUESTION_CHARS else f"{line[: _MAX_QUESTION_CHARS - 1]}…"
