"""Queries that make much out of nothing are refused before they run; honest ones are not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bos_sqlguard import DIALECTS, Guard

pytestmark = pytest.mark.security

CORPUS = Path(__file__).parents[1] / "corpus"
CROSSED = "FROM orders AS a, orders AS b"
RULES = {"GROWTH_TOO_LARGE", "SERIES_TOO_LONG", "ARGUMENT_TOO_LARGE", "CROSS_JOIN_KEPT"}


def statements(kind: str, dialect: str) -> list[str]:
    """The one-line statements of ``growth_<dialect>.txt`` under that heading."""
    text = (CORPUS / f"growth_{dialect}.txt").read_text(encoding="utf-8")
    section = text.partition(f"## {kind}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_would_fill_the_memory_is_refused(dialect: str, guards: dict[str, Guard]) -> None:
    failed = []
    for statement in statements("hostile", dialect):
        verdict = guards[dialect].check(statement)
        rules = {violation.rule for violation in verdict.violations}
        if verdict.is_safe or not rules or not rules <= RULES:
            failed.append((statement, rules))
    assert failed == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_honest_queries_that_make_much_pass(dialect: str, guards: dict[str, Guard]) -> None:
    refused = {
        statement: verdict.violations
        for statement in statements("honest", dialect)
        if not (verdict := guards[dialect].check(statement)).is_safe
    }
    assert refused == {}


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
def test_length_of_a_series_is_known(series: str, is_safe: bool, guards: dict[str, Guard]) -> None:
    verdict = guards["postgres"].check(f"SELECT g FROM generate_series({series}) AS g")
    assert verdict.is_safe == is_safe
    assert {violation.rule for violation in verdict.violations} <= {"SERIES_TOO_LONG"}


def test_long_chains_are_read_to_their_end(guards: dict[str, Guard]) -> None:
    """Conditions and sums of hundreds of parts are honest, and no recursion."""
    conditions = " OR ".join(f"order_id = {number}" for number in range(800))
    added = " + ".join(["amount"] * 900)
    assert guards["postgres"].check(f"SELECT order_id FROM orders WHERE {conditions}").is_safe
    assert guards["postgres"].check(f"SELECT {added} FROM orders").is_safe


def _built_up(first: str, level: str, levels: int) -> str:
    """A row of CTEs, each made by ``level`` from the last."""
    ctes = [f"c0 AS ({first})"]
    ctes += [f"c{at} AS ({level.format(last=f'c{at - 1}')})" for at in range(1, levels + 1)]
    return f"WITH {', '.join(ctes)} SELECT count(1) FROM c{levels}"


def _nested_steps(levels: int) -> str:
    query = "SELECT 1 AS n"
    for at in range(levels):
        step = f"SELECT n + 1 FROM r{at} WHERE n < 5 AND EXISTS ({query})"
        query = f"WITH RECURSIVE r{at} AS (SELECT 1 AS n UNION ALL {step}) SELECT n FROM r{at}"
    return query


def _derived(levels: int) -> str:
    query = "SELECT 1 AS n"
    for at in range(levels):
        query = f"SELECT *, *, * FROM ({query}) AS t{at}"
    return query


def _same_names(levels: int) -> str:
    return f"SELECT 1 FROM {', '.join(['orders'] * levels)}"


_ORDERS = "SELECT order_id AS x FROM orders"
_DOUBLING: dict[str, Callable[[int], str]] = {
    "steps within steps": _nested_steps,
    "stars": lambda levels: _built_up(_ORDERS, "SELECT *, * FROM {last}", levels),
    "stars of numbers": lambda levels: _built_up(
        "SELECT 1 AS x", "SELECT a.*, a.* FROM {last} AS a", levels
    ),
    "joins with itself": lambda levels: _built_up(
        _ORDERS, "SELECT * FROM {last} AS a CROSS JOIN {last} AS b", levels
    ),
    "subqueries": _derived,
    "a chain": lambda levels: _built_up(_ORDERS, "SELECT x FROM {last}", 15 * levels),
    "sources of one name": lambda levels: _same_names(15 * levels),
}


@pytest.mark.parametrize("levels", [15, 3000])
@pytest.mark.parametrize("shape", _DOUBLING)
def test_what_builds_on_itself_is_refused(
    shape: str, levels: int, guards: dict[str, Guard]
) -> None:
    """Twice the work for each level would take hours; beyond some the text is too long or deep."""
    verdict = guards["postgres"].check(_DOUBLING[shape](levels))
    assert not verdict.is_safe
    rules = {violation.rule for violation in verdict.violations}
    assert rules <= {"GROWTH_TOO_LARGE", "TOO_COMPLEX", "TEXT"}, verdict.violations
    if levels <= 15:  # how much deeper is readable depends on the stack
        assert rules == {"GROWTH_TOO_LARGE"}


def test_some_levels_are_honest(guards: dict[str, Guard]) -> None:
    for shape, levels in [("steps within steps", 5), ("stars", 5), ("a chain", 4)]:
        verdict = guards["postgres"].check(_DOUBLING[shape](levels))
        assert verdict.is_safe, (shape, verdict.violations)


def test_a_refusal_says_what_grows_and_what_to_do(guards: dict[str, Guard]) -> None:
    for query, message in (
        ("SELECT repeat(repeat('x', 10000), 10000)", "repeat makes values that are too long"),
        ("SELECT repeat(repeat('x', 10000), 10000)", "make shorter values"),
        (f"WITH x AS (SELECT a.name {CROSSED}) SELECT string_agg(name, ',') FROM x", "string_agg"),
        (_nested_steps(20), "too many of its parts build on one another"),
        (_derived(20), "a list of more than 2,000 columns"),
    ):
        assert message in guards["postgres"].check(query).user_message
