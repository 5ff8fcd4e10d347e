"""What changed between two evaluations of the same set."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bos_errors import InvalidArgument

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES = 256 * 1024 * 1024
_COMPARED = ("status", "agents", "sql", "calls", "tokens", "cost_micros", "answer")
_TOTALS = ("questions", "passed", "calls", "tokens", "cost_micros", "seconds")


@dataclass(frozen=True, slots=True)
class Change:
    """One difference of a question between the first and the second evaluation."""

    question_id: str
    what: str
    before: str
    after: str
    verdict: str = ""
    """``fixed``, ``broken``, or empty where the verdict is the same."""


def read_report(path: Path) -> dict[str, Any]:
    """Read the JSON of an evaluation.

    Raises:
        InvalidArgument: the file is none.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InvalidArgument(f"{path}: larger than {_MAX_BYTES} bytes.")
        report = json.loads(path.read_text(encoding="utf-8"))
        for each in report["results"]:
            each["id"], each["passed"], each["checks"]
        report["totals"].keys()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidArgument(f"{path} holds no evaluation ({type(error).__name__}).") from error
    return dict(report)


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Every difference, in the order of the second evaluation; time is not one."""
    earlier = {each["id"]: each for each in before["results"]}
    later = {each["id"]: each for each in after["results"]}
    found = [
        change
        for name, result in later.items()
        for change in _changes(name, earlier.get(name), result)
    ]
    gone = [Change(name, "question", "asked", "not asked") for name in earlier if name not in later]
    return found + gone


def totals(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Totals of both evaluations, by name."""
    return [
        (name, str(before["totals"].get(name, "")), str(after["totals"].get(name, "")))
        for name in _TOTALS
    ]


def _changes(name: str, before: dict[str, Any] | None, after: dict[str, Any]) -> list[Change]:
    if before is None:
        return [Change(name, "question", "not asked", "asked")]
    found = []
    if before["passed"] != after["passed"]:
        verdict = "fixed" if after["passed"] else "broken"
        old, new = _failed(before), _failed(after)
        found.append(Change(name, "passed", old or "passed", new or "passed", verdict))
    elif (old := _failed(before)) != (new := _failed(after)):
        found.append(Change(name, "failed checks", old, new))
    found += [
        Change(name, what, _text(before.get(what)), _text(after.get(what)))
        for what in _COMPARED
        if before.get(what) != after.get(what)
    ]
    return found


def _failed(result: dict[str, Any]) -> str:
    return "; ".join(
        f"{each['name']}: {each['found']} instead of {each['expected']}"
        for each in result["checks"]
        if not each["passed"]
    )


def _text(value: Any) -> str:
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)
