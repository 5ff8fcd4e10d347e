"""What changed between two evaluations of the same set."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bos_cli.evaluation.grading import CRITERIA
from bos_errors import InvalidArgument

_MAX_BYTES = 256 * 1024 * 1024
_COMPARED = ("status", "agents", "sql", "calls", "tokens", "cost_micros", "answer")
_GRADER = ("model", "calls", "tokens", "cost_micros")
_TOTALS = ("questions", "passed", "not_graded", "calls", "tokens", "cost_micros", "seconds")


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
    """Totals of both evaluations, by name; those of grading if a model graded one of them."""
    found = [
        (name, str(before["totals"].get(name, "")), str(after["totals"].get(name, "")))
        for name in _TOTALS
    ]
    one, other = before.get("grader", {}), after.get("grader", {})
    if one.get("model") or other.get("model"):
        found += [
            (f"grader {name}", str(one.get(name, "")), str(other.get(name, ""))) for name in _GRADER
        ]
    return found


def _changes(name: str, before: dict[str, Any] | None, after: dict[str, Any]) -> list[Change]:
    if before is None:
        return [Change(name, "question", "not asked", "asked")]
    found = []
    (old, one), (new, other) = _open(before), _open(after)
    if _verdict(before) != _verdict(after):
        label = _label(before, after)
        found.append(Change(name, "passed", one or "passed", other or "passed", label))
    elif old != new:
        found.append(Change(name, "failed checks", one, other))
    found += [
        Change(name, what, _text(before.get(what)), _text(after.get(what)))
        for what in _COMPARED
        if before.get(what) != after.get(what)
    ]
    return found


def _verdict(result: dict[str, Any]) -> str:
    """Verdict of a question or check; files of earlier versions say only whether it passed."""
    return str(result.get("verdict") or ("passed" if result["passed"] else "failed"))


def _label(before: dict[str, Any], after: dict[str, Any]) -> str:
    """``broken`` or ``fixed``: whether a check fails in one of them that was graded in both."""
    if _verdict(before) != "failed" and _failing(after) - _ungraded(before):
        return "broken"
    if _verdict(after) != "failed" and _failing(before) - _ungraded(after):
        return "fixed"
    return ""


def _failing(result: dict[str, Any]) -> set[tuple[str, str]]:
    return {_key(each) for each in result["checks"] if _verdict(each) == "failed"}


def _ungraded(result: dict[str, Any]) -> set[tuple[str, str]]:
    return {_key(each) for each in result["checks"] if _verdict(each) in ("not_graded", "error")}


def _key(check: dict[str, Any]) -> tuple[str, str]:
    return check["name"], check["expected"]


def _open(result: dict[str, Any]) -> tuple[list[str], str]:
    """Checks that were not passed: what is compared of them, and what is shown.

    A model gives its reasons in other words each time, which is no change.
    """
    checks = [each for each in result["checks"] if _verdict(each) != "passed"]
    shown = [f"{each['name']}: {each['found']} instead of {each['expected']}" for each in checks]
    compared = [
        f"{_verdict(each)}: {each['expected']}" if each["name"] == CRITERIA else words
        for each, words in zip(checks, shown, strict=True)
    ]
    return compared, "; ".join(shown)


def _text(value: Any) -> str:
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)
