"""Queries that make much out of nothing are refused before they run; honest ones are not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bos_sqlguard import DIALECTS

if TYPE_CHECKING:
    from bos_sqlguard import Guard

pytestmark = pytest.mark.security

CORPUS = Path(__file__).parents[1] / "corpus"
RULES = {"GROWTH_TOO_LARGE", "SERIES_TOO_LONG", "ARGUMENT_TOO_LARGE"}


def statements(kind: str) -> list[object]:
    """The one-line statements of ``growth_<dialect>.txt`` under that heading."""
    cases: list[object] = []
    for dialect in DIALECTS:
        text = (CORPUS / f"growth_{dialect}.txt").read_text(encoding="utf-8")
        section = text.partition(f"## {kind}\n")[2].partition("\n## ")[0]
        cases += [
            pytest.param(dialect, line, id=f"{dialect}: {line[:60]}")
            for line in section.splitlines()
            if line
        ]
    return cases


@pytest.mark.parametrize(("dialect", "statement"), statements("hostile"))
def test_what_would_fill_the_memory_is_refused(
    dialect: str, statement: str, guards: dict[str, Guard]
) -> None:
    verdict = guards[dialect].check(statement)
    assert not verdict.is_safe
    assert {violation.rule for violation in verdict.violations} <= RULES, verdict.violations


@pytest.mark.parametrize(("dialect", "statement"), statements("honest"))
def test_what_people_ask_for_passes(dialect: str, statement: str, guards: dict[str, Guard]) -> None:
    assert guards[dialect].check(statement).violations == ()


@pytest.mark.parametrize(
    ("expression", "is_safe"),
    [
        ("repeat('x', 10000)", True),
        ("repeat('x', 10000) || repeat('x', 10000)", True),
        (" || ".join(["repeat('x', 10000)"] * 10), True),
        (" || ".join(["repeat('x', 10000)"] * 11), False),
        ("repeat(note, 200)", True),
        ("repeat(note, 201)", False),
        ("repeat(repeat('x', 100), 1000)", True),
        ("repeat(repeat('x', 101), 1000)", False),
        ("replace(note, 'ab', repeat('c', 400))", True),
        ("replace(note, 'ab', repeat('c', 402))", False),
        ("'x'::char(24000)", True),
        ("'x'::char(26000)", False),
        ("string_agg(lpad(note, 90), '')", True),
        ("string_agg(lpad(note, 130), '')", False),
        ("string_agg(repeat(note, 40), '')", True),
        ("string_agg(repeat(note, 41), '')", False),
    ],
)
def test_each_bound_has_two_sides(expression: str, is_safe: bool, guards: dict[str, Guard]) -> None:
    verdict = guards["postgres"].check(f"SELECT {expression} FROM orders")
    assert verdict.is_safe == is_safe, verdict.violations


@pytest.mark.parametrize(
    ("series", "is_safe"),
    [
        ("1, 100000", True),
        ("1, 100001", False),
        ("1, 1e5", True),
        ("1, 2e5", False),
        ("-100000, -1", True),
        ("100000, 1", True),
        ("100000, 1, -1", True),
        ("200000, 1, -1", False),
        ("1, 10, 0", False),
        ("1, 10, 0.0001", True),
        ("1, 10, 0.00001", False),
        ("1, (SELECT 10)", False),
        ("timestamp '2025-01-01', timestamp '2025-01-02', interval '1 second'", True),
        ("timestamp '2025-01-01', timestamp '2025-01-03', interval '1 second'", False),
        ("timestamp '2025-01-01', now(), interval '1 day'", True),
        ("timestamp '2025-01-01', now(), interval '1 second'", False),
        ("timestamp '2025-01-01', 'infinity', interval '1 day'", False),
        ("now(), now() + interval '90 days', '1 day'", True),
        ("now(), now() + interval '900 years', '1 day'", False),
    ],
)
def test_a_series_tells_how_long_it_is(
    series: str, is_safe: bool, guards: dict[str, Guard]
) -> None:
    verdict = guards["postgres"].check(f"SELECT g FROM generate_series({series}) AS g")
    assert verdict.is_safe == is_safe
    assert {violation.rule for violation in verdict.violations} <= {"SERIES_TOO_LONG"}


def test_a_refusal_says_what_grows_and_what_to_do(guards: dict[str, Guard]) -> None:
    verdict = guards["postgres"].check("SELECT repeat(repeat('x', 10000), 10000)")
    assert "repeat makes values that are too long" in verdict.user_message
    assert "make shorter values" in verdict.user_message


def test_long_chains_are_read_to_their_end(guards: dict[str, Guard]) -> None:
    """Conditions and sums of hundreds of parts are honest, and no recursion."""
    conditions = " OR ".join(f"order_id = {number}" for number in range(800))
    added = " + ".join(["amount"] * 900)
    assert guards["postgres"].check(f"SELECT order_id FROM orders WHERE {conditions}").is_safe
    assert guards["postgres"].check(f"SELECT {added} FROM orders").is_safe
