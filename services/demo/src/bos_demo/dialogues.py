"""The demo questions that take more than one turn: followed up, asked back, or approved.

`dialogues/followups.yaml`, `clarified.yaml` and `approved.yaml` hold them;
`bos_demo.dialogue_fixtures` turns them into replies of the scripted model.
"""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import product
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from bos_demo.questions import Question, SqlStep, read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class FollowUp(Question):
    """A question that means something only after another one."""

    after: str
    """The question before."""


class Approved(Question):
    """A question with a step whose program a person approves."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Choice(_Strict):
    """One answer to a clarifying question."""

    offered: str
    """As the user is shown it."""
    words: str
    """As tasks name it, and by which it is found in a reply."""
    sql: str
    """Its part of the query, with the marks of `bos_demo.dialects`."""


class Ask(_Strict):
    """One clarifying question; the first choice is what would be assumed."""

    slot: str
    question: str
    choices: tuple[Choice, ...] = Field(min_length=2)

    @property
    def in_reply(self) -> str:
        """The pattern that finds a choice in a prompt: the one replied, else the assumed one."""
        words = "|".join(re.escape(each.words) for each in self.choices)
        assumed = re.escape(self.choices[0].words)
        return rf"(?is)\A(?:.*The user replied: [^\n]*?\b(?={words})|.*?\b(?={assumed}))({words})\b"


class Clarified(_Strict):
    """A question that could mean several things, and what it comes to for each reply."""

    id: str
    question: str
    rationale: str
    task: str
    """What the agent is to do before anything is settled."""
    tables: tuple[str, ...]
    asks: tuple[Ask, ...]
    assumptions: tuple[str, ...]
    settled_task: str
    """What it is to do then; `{slot}` stands for the words of the choice."""
    columns: tuple[str, ...]
    sql: str
    """The query; `{slot}` stands for the choice's part of it."""
    answer: str

    def steps(self) -> Iterator[tuple[Mapping[str, Choice], SqlStep]]:
        """Every combination of choices with the step that answers it."""
        for chosen in product(*(ask.choices for ask in self.asks)):
            by_slot = {ask.slot: each for ask, each in zip(self.asks, chosen, strict=True)}
            words = {slot: each.words for slot, each in by_slot.items()}
            yield (
                by_slot,
                SqlStep(
                    agent="sql",
                    id="settled",
                    task=fill(self.settled_task, words),
                    tables=self.tables,
                    columns=self.columns,
                    sql=fill(self.sql, {slot: each.sql for slot, each in by_slot.items()}),
                    reference="",
                    answer=fill(self.answer, words),
                ),
            )


def fill(template: str, values: Mapping[str, str]) -> str:
    """`template` with the slots of these names filled in; all other braces are left alone."""
    pattern = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({pattern})\}}", lambda match: values[match[1]], template)


def load_followups() -> tuple[FollowUp, ...]:
    """Return every follow-up."""
    return tuple(FollowUp.model_validate({"kind": "sql", **each}) for each in _read("followups"))


def load_clarified() -> tuple[Clarified, ...]:
    """Return every question that is asked back."""
    return tuple(Clarified.model_validate(each) for each in _read("clarified"))


def load_approved() -> tuple[Approved, ...]:
    """Return every question that waits for an approval."""
    return tuple(Approved.model_validate({"kind": "chains", **each}) for each in _read("approved"))


def _read(name: str) -> list[dict[str, Any]]:
    path = files("bos_demo") / "dialogues" / f"{name}.yaml"
    entries: list[dict[str, Any]] = read_yaml(path.read_text(encoding="utf-8"))
    return entries
