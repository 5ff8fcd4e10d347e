"""Rules that an outcome is graded by; each is one check with what was expected and found."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from bos_cli.evaluation.outcomes import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bos_cli.evaluation.outcomes import Outcome, Rows
    from bos_cli.evaluation.questions import Cell, Expected

ASKED, WAITING = "clarification_needed", "waiting_for_approval"
_ANSWERED = ("succeeded", "partially_succeeded")
_GROUPING = re.compile(r"(?<=\d),(?=\d)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_SHOWN_ROWS = 3
_SHOWN_CHARS = 300

CRITERIA = "criteria"
"""Name of the checks that a model grades; all others are rules."""
Verdict = Literal["passed", "failed", "not_graded", "error"]
_WORST_FIRST: tuple[Verdict, ...] = ("failed", "error", "not_graded")


@dataclass(frozen=True, slots=True)
class Check:
    """One rule or criterion, and whether the outcome keeps it."""

    name: str
    verdict: Verdict
    """``not_graded``: no model was named for it; ``error``: the model gave no verdict."""
    expected: str
    found: str

    @property
    def passed(self) -> bool:
        """Whether it is kept."""
        return self.verdict == "passed"


def verdict_of(checks: Iterable[Check]) -> Verdict:
    """Verdict of a question: that of its worst check; it passed if all of them did."""
    found = {check.verdict for check in checks}
    return next((each for each in _WORST_FIRST if each in found), "passed")


def grade(expected: Expected, outcome: Outcome) -> tuple[Check, ...]:
    """Checks of every rule that the question gives; its status is always one of them."""
    return tuple(_checks(expected, outcome))


def same_rows(
    one: Rows, other: Rows, *, ordered: bool = False, tolerance: Decimal = Decimal(0)
) -> bool:
    """Whether two results hold the same rows: typed, and in any order unless ``ordered``.

    A number equals a number of another width, and never a text; a row counts as often as it occurs.
    """
    if len(one) != len(other):
        return False
    mine, theirs = ([tuple(map(plain, row)) for row in rows] for rows in (one, other))
    if ordered:
        return all(_same_row(a, b, tolerance) for a, b in zip(mine, theirs, strict=True))
    if not tolerance:
        return Counter(map(_typed, mine)) == Counter(map(_typed, theirs))
    left = sorted(theirs, key=_sort_key)
    for row in sorted(mine, key=_sort_key):
        place = next((n for n, each in enumerate(left) if _same_row(row, each, tolerance)), None)
        if place is None:
            return False
        del left[place]
    return True


def _checks(expected: Expected, outcome: Outcome) -> Iterable[Check]:
    wanted = (ASKED,) if expected.asks else (WAITING,) if expected.approval else _ANSWERED
    yield _rule("status", outcome.status in wanted, " or ".join(wanted), _status(outcome))
    if expected.agents is not None:
        mine, theirs = sorted(set(expected.agents)), sorted(outcome.agents)
        yield _rule("agents", mine == theirs, ", ".join(mine), ", ".join(theirs))
    if expected.rows is not None:
        rows = expected.rows
        found = any(
            same_rows(rows, each, ordered=expected.ordered, tolerance=expected.tolerance)
            for each in outcome.tables
        )
        nearest = next((t for t in outcome.tables if len(t) == len(rows)), None)
        nearest = nearest if nearest is not None else next(iter(outcome.tables), [])
        yield _rule("rows", found, _shown(rows), _shown(nearest))
    for fact in expected.mentions:
        stated = mentions(outcome.answer, fact, expected.tolerance)
        yield _rule("mentions", stated, str(fact), outcome.answer[:_SHOWN_CHARS])
    for text in expected.cites:
        cited = any(text.casefold() in each.casefold() for each in outcome.sources)
        yield _rule("cites", cited, text, f"{len(outcome.sources)} sources")
    if (most := expected.max_calls) is not None:
        yield _rule("calls", outcome.calls <= most, f"at most {most}", str(outcome.calls))
    if (most := expected.max_tokens) is not None:
        yield _rule("tokens", outcome.tokens <= most, f"at most {most}", str(outcome.tokens))


def _rule(name: str, kept: bool, expected: str, found: str) -> Check:
    return Check(name, "passed" if kept else "failed", expected, found)


def mentions(answer: str, fact: Cell, tolerance: Decimal = Decimal(0)) -> bool:
    """Whether ``answer`` states ``fact``: numbers by value, without their sign, texts by letters.

    A minus sign may stand in words ("fell by"), and thousands may be grouped.
    """
    value = plain(fact)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = Decimal(value)
    if isinstance(value, Decimal):
        numbers = (Decimal(each) for each in _NUMBER.findall(_GROUPING.sub("", answer)))
        return any(abs(abs(each) - abs(value)) <= tolerance for each in numbers)
    return str(value).casefold() in answer.casefold()


def _same_row(one: Sequence[Cell], other: Sequence[Cell], tolerance: Decimal) -> bool:
    return len(one) == len(other) and all(
        abs(a - b) <= tolerance
        if isinstance(a, Decimal) and isinstance(b, Decimal)
        else type(a) is type(b) and a == b
        for a, b in zip(one, other, strict=True)
    )


def _typed(row: Sequence[Cell]) -> tuple[tuple[str, Cell], ...]:
    return tuple((type(each).__name__, each) for each in row)


def _sort_key(row: Sequence[Cell]) -> list[tuple[str, Decimal, str]]:
    return [
        (type(each).__name__, each if isinstance(each, Decimal) else Decimal(0), str(each))
        for each in row
    ]


def _status(outcome: Outcome) -> str:
    return f"{outcome.status}: {outcome.error}" if outcome.error else outcome.status


def _shown(rows: Rows) -> str:
    shown = "; ".join(", ".join(map(str, row)) for row in rows[:_SHOWN_ROWS])
    more = f"; and {len(rows) - _SHOWN_ROWS} more" if len(rows) > _SHOWN_ROWS else ""
    return f"{len(rows)} rows: {shown}"[:_SHOWN_CHARS] + more
