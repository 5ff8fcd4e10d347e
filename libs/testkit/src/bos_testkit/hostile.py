"""Texts and values that look like others: one corpus for all that shows what others wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.json_format import ParseDict

from bos.common.v1 import Value


class HostileText(NamedTuple):
    """A text, and how a person must be shown it."""

    what: str
    text: str
    shown: str


def hostile_texts() -> list[HostileText]:
    """Texts with something in them that is not seen, or that moves what is."""
    return [HostileText(**each) for each in _corpus()["texts"]]


def confusable_values() -> list[tuple[str, Sequence[Value]]]:
    """Groups of values that differ and could be shown alike, each with what they have in common."""
    return [
        (group["what"], [ParseDict(value, Value()) for value in group["values"]])
        for group in _corpus()["confusable"]
    ]


class Statement(NamedTuple):
    """A statement of the guard's corpus."""

    heading: str
    """What it does, and ``|`` with the rules that refuse it; or the class of attack it is of."""
    text: str

    @property
    def rules(self) -> frozenset[str]:
        """The rules that may refuse it; none are named for a statement of a class."""
        return frozenset(self.heading.partition(" | ")[2].split())


def guard_corpus(path: Path) -> list[Statement]:
    """Statements below ``=== heading`` lines, then one a line below ``## class`` lines."""
    # Nothing is translated: some statements hold line separators, also of other alphabets.
    with path.open(encoding="utf-8", newline="") as file:
        headed, _, classed = file.read().partition("\n## ")
    parts = [part.split("\n", 1) for part in headed.split("=== ")[1:]]
    found = [Statement(heading, text.removesuffix("\n")) for heading, text in parts]
    for part in classed.removesuffix("\n").split("\n## ") if classed else ():
        heading, *lines = part.split("\n")
        found += [Statement(heading, line) for line in lines if line]
    return found


def _corpus() -> dict[str, list[dict[str, Any]]]:
    text = files("bos_testkit").joinpath("hostile_texts.json").read_text(encoding="utf-8")
    corpus: dict[str, list[dict[str, Any]]] = json.loads(text)
    return corpus
