"""The rules of the guard as data, and what a broken rule looks like."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

# A detail is a fragment of the user's query: enough to find the place, never a page.
_MAX_DETAIL = 120


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: a stable ``id``, a ``title``, the reason ``why`` and the ``message`` for people."""

    id: str
    title: str
    why: str
    message: str

    def violation(self, detail: str) -> Violation:
        """Return the violation of this rule by ``detail``, the offending part of the query."""
        short = detail if len(detail) <= _MAX_DETAIL else detail[: _MAX_DETAIL - 1] + "…"
        return Violation(rule=self.id, message=self.message.format(detail=short), detail=short)


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule: its stable id, a sentence for people, and the offending part of the query."""

    rule: str
    message: str
    detail: str


def load_rules() -> Mapping[str, Rule]:
    """Return every rule by id, in the order of ``rules.toml``."""
    text = resources.files(__package__).joinpath("rules.toml").read_text(encoding="utf-8")
    return {name: Rule(id=name, **fields) for name, fields in tomllib.loads(text).items()}
