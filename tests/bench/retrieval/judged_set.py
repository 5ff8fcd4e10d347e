"""The judged set: passages, questions, and which passages answer which question how well."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "judged"
_WORD = re.compile(r"[a-z]{3,}")
_COMMON_WORDS = """
about after all also and any are because been but can did does for from had has have her him his
how into its itself just may more most much must not nobody nor off one ones only other our out
over own she should since some somebody such than that the their them then there these they this
those until upon was were what when where which while who whom whose why will with would you your
"""
_COMMON = frozenset(_COMMON_WORDS.split())


class Kind(StrEnum):
    """What makes a question hard."""

    PARAPHRASE = "paraphrase"
    """Shares few words with the passage that answers it."""
    IDENTIFIER = "identifier"
    """Names a part, a fault, a clause or a version exactly."""
    PLAIN = "plain"
    UNANSWERABLE = "unanswerable"


class Split(StrEnum):
    """What a question is for."""

    DEV = "dev"
    """Choices are made on these."""
    HELD = "held"
    """Results are reported on these, which no choice has looked at."""


@dataclass(frozen=True, slots=True)
class JudgedPassage:
    """A passage as ingestion would have cut it."""

    id: str
    document: str
    """Title of its document."""
    section: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its judgements."""

    id: str
    kind: Kind
    split: Split
    text: str
    relevant: Mapping[str, int]
    """Grade by passage id: 2 answers it, 1 helps."""


def passages() -> list[JudgedPassage]:
    """All passages, in the order of the files."""
    return [JudgedPassage(**row) for name in ("company", "terms") for row in _rows(f"{name}.jsonl")]


def questions() -> list[Question]:
    """All questions, in the order of the files."""
    return [
        Question(**{**row, "kind": Kind(row["kind"]), "split": Split(row["split"])})
        for name in ("company", "terms")
        for row in _rows(f"{name}_questions.jsonl")
    ]


def shared_words(question: str, passage: str) -> float:
    """Share of the question's words that the passage has too, by their first five letters.

    Words of fewer than three letters and very common ones do not count.
    """
    asked, found = _stems(question), _stems(passage)
    return len(asked & found) / len(asked) if asked else 0.0


def _stems(text: str) -> set[str]:
    return {word[:5] for word in _WORD.findall(text.casefold()) if word not in _COMMON}


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]
