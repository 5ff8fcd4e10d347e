"""Statements of published attack classes, written by hand: the guard lets none of them pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bos_sqlguard import DIALECTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from bos_sqlguard import Dialect, Guard

    Corpus = Callable[[str, Dialect], list[tuple[str, str]]]

pytestmark = pytest.mark.security

AT_LEAST = 300


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_hostile_statement_passes(
    dialect: Dialect, corpus: Corpus, guards: dict[str, Guard]
) -> None:
    passed, failed = [], []
    for heading, statement in corpus("hostile", dialect):
        verdict = guards[dialect].check(statement)
        if verdict.is_safe or verdict.safe_sql or not verdict.violations:
            passed.append((heading, statement))
        # A refusal by accident is a refusal, and a defect.
        if any(violation.rule in {"GUARD_ERROR", "UNSTABLE"} for violation in verdict.violations):
            failed.append((heading, statement))

    assert passed == []
    assert failed == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_corpus_is_as_large_as_promised(dialect: Dialect, corpus: Corpus) -> None:
    statements = {statement for _, statement in corpus("hostile", dialect)}

    assert len(statements) >= AT_LEAST


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_legitimate_corpus_is_as_large_as_promised(dialect: Dialect, corpus: Corpus) -> None:
    assert len({statement for _, statement in corpus("legitimate", dialect)}) >= 100


def test_a_column_may_have_the_name_of_a_function(guards: dict[str, Guard]) -> None:
    """Both sides: what a row's column may be called, and how to reach one that may not."""
    guard = guards["postgres"]

    assert guard.check("SELECT o.lo_orderdate, o.version, o.length FROM orders AS o").is_safe
    assert guard.check("SELECT pg_count, record_out FROM orders").is_safe
    assert guard.check("SELECT o.pg_count FROM orders AS o").violations[0].detail == "o.pg_count"


@pytest.mark.parametrize(
    ("call", "is_safe"),
    [
        ("printf('%999d', 1)", True),
        ("printf('1000 of %d', 1)", True),
        ("printf('%d * %%1000', 1)", True),
        ("printf('%d of 1000', 1)", True),
        ("printf('%1000d', 1)", False),
        ("printf('%-+ #01000d', 1)", False),
        ("printf('%.1000f', 1)", False),
        ("printf('%%%1000d', 1)", False),
        ("printf('%*d', 1, 1)", False),
        ("printf('%d' || 'x', 1)", False),
        ("printf(note, 1)", False),
        ("printf()", False),
        ("format('%!1000s', 'x')", False),
    ],
)
def test_a_format_asks_for_no_wide_field(
    call: str, is_safe: bool, guards: dict[str, Guard]
) -> None:
    assert guards["sqlite"].check(f"SELECT {call} FROM orders").is_safe == is_safe
