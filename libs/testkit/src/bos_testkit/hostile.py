"""Texts and values that look like others: one corpus for all that shows what others wrote."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.json_format import ParseDict

from bos.common.v1 import Value

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def _corpus() -> dict[str, list[dict[str, Any]]]:
    text = files("bos_testkit").joinpath("hostile_texts.json").read_text(encoding="utf-8")
    corpus: dict[str, list[dict[str, Any]]] = json.loads(text)
    return corpus
