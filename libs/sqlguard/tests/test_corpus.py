"""Both sides of every rule on statements of every dialect."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from sqlglot import exp, parse_one

if TYPE_CHECKING:
    from bos_sqlguard import Dialect, Guard

pytestmark = [
    pytest.mark.security,
    pytest.mark.requirement("D-14", "D-15", "D-16", "D-17", "D-18", "T-05"),
]

Case = tuple["Dialect", str, str]


def test_hostile_statement_is_refused_by_the_expected_rules(
    hostile: Case, guards: dict[str, Guard]
) -> None:
    dialect, heading, statement = hostile
    expected = set(heading.split(" | ")[1].split())

    verdict = guards[dialect].check(statement)

    rules = {violation.rule for violation in verdict.violations}
    assert not verdict.is_safe
    assert verdict.safe_sql == ""
    assert rules
    assert rules <= expected, verdict.violations
    assert verdict.user_message.startswith("The query was refused: ")


def test_legitimate_query_passes(legitimate: Case, guards: dict[str, Guard]) -> None:
    dialect, _, statement = legitimate

    verdict = guards[dialect].check(statement)

    assert verdict.violations == ()
    assert verdict.is_safe
    assert verdict.user_message == ""


def test_legitimate_query_is_unchanged_but_for_the_limit(
    legitimate: Case, guards: dict[str, Guard]
) -> None:
    dialect, _, statement = legitimate
    verdict = guards[dialect].check(statement)

    # An independent parser setting (functions understood) must see the same query.
    given, written = parse_one(statement, read=dialect), parse_one(verdict.safe_sql, read=dialect)
    if verdict.limited:
        if dialect == "tsql" and isinstance(given, exp.SetOperation):
            written = written.find(exp.Subquery).this
        else:
            written.set("limit", given.args.get("limit"))

    assert _shape(written) == _shape(given)


def test_checking_a_safe_query_again_changes_nothing(
    legitimate: Case, guards: dict[str, Guard]
) -> None:
    dialect, _, statement = legitimate
    first = guards[dialect].check(statement)

    again = guards[dialect].check(first.safe_sql)

    assert again.safe_sql == first.safe_sql
    assert again.used_tables == first.used_tables


def _shape(tree: exp.Expr) -> Counter[str]:
    """Names, literals and constructs of a query, regardless of spelling and brackets."""
    shape: Counter[str] = Counter()
    for node in tree.walk():
        # T-SQL's writer names columns of inner queries once more: `a AS a`.
        named = node.parent if node.arg_key == "alias" else None
        if isinstance(named, exp.Alias) and named.alias == named.this.name:
            continue
        if isinstance(node, exp.Identifier | exp.Literal | exp.RawString):
            shape[f"{node.name.lower()}"] += 1
        elif isinstance(node, exp.Func | exp.Binary | exp.Query):
            shape[type(node).__name__] += 1
    return shape
