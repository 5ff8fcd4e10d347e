"""Demo questions of more than one turn: follow-ups, clarifying questions, approvals.

`dialogues/followups.yaml`, `clarified.yaml` and `approved.yaml` hold them;
`bos_demo.scripted.dialogue` turns them into replies of the scripted model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from itertools import product
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from bos_demo.questions import Question, SqlStep, read_yaml


class FollowUp(Question):
    """A follow-up question, which needs the previous one."""

    after: str
    """The previous question."""


class Approved(Question):
    """A question with a step whose program the user approves."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Choice(_Strict):
    """One choice of a clarifying question."""

    offered: str
    """Label shown to the user."""
    words: str
    """Words in tasks, by which it is also recognised in a reply."""
    sql: str
    """Its fragment of the query, with the marks of `bos_demo.dialects`."""


class Ask(_Strict):
    """One clarifying question; the first choice is the default assumption."""

    slot: str
    question: str
    choices: tuple[Choice, ...] = Field(min_length=2)

    @property
    def in_reply(self) -> str:
        """Pattern of a choice in a prompt: the one in the reply, else the default."""
        words = "|".join(re.escape(each.words) for each in self.choices)
        assumed = re.escape(self.choices[0].words)
        return rf"(?is)\A(?:.*The user replied: [^\n]*?\b(?={words})|.*?\b(?={assumed}))({words})\b"


class Clarified(_Strict):
    """An ambiguous question, with the query for each combination of replies."""

    id: str
    question: str
    rationale: str
    task: str
    """Task of the agent before the clarification."""
    tables: tuple[str, ...]
    asks: tuple[Ask, ...]
    assumptions: tuple[str, ...]
    settled_task: str
    """Task after the clarification; `{slot}` stands for the words of the choice."""
    columns: tuple[str, ...]
    sql: str
    """The query; `{slot}` stands for the choice's fragment."""
    answer: str

    def steps(self) -> Iterator[tuple[Mapping[str, Choice], SqlStep]]:
        """All combinations of choices, each with the step that answers it."""
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
    """Fill the slots of these names in `template`; all other braces are kept."""
    pattern = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({pattern})\}}", lambda match: values[match[1]], template)


def load_followups() -> tuple[FollowUp, ...]:
    """Return every follow-up."""
    return tuple(FollowUp.model_validate({"kind": "sql", **each}) for each in _read("followups"))


def load_clarified() -> tuple[Clarified, ...]:
    """Return every ambiguous question."""
    return tuple(Clarified.model_validate(each) for each in _read("clarified"))


def load_approved() -> tuple[Approved, ...]:
    """Return every question with an approval."""
    return tuple(Approved.model_validate({"kind": "chains", **each}) for each in _read("approved"))


def _read(name: str) -> list[dict[str, Any]]:
    path = files("bos_demo") / "dialogues" / f"{name}.yaml"
    entries: list[dict[str, Any]] = read_yaml(path.read_text(encoding="utf-8"))
    return entries
