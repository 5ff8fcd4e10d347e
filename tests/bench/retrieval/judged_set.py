"""The judged set: passages, questions, and which passages answer which question how well."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "judged"


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


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]
