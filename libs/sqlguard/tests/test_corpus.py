"""Both sides of every rule on statements of every dialect."""

import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlglot import exp, parse_one

from bos_sqlguard import DIALECTS, Dialect, Guard, guard, load_functions
from bos_sqlguard.grammar import Grammar
from bos_sqlguard.wording import same_text, same_wording
from bos_testkit.hostile import Statement

pytestmark = [
    pytest.mark.security,
    pytest.mark.requirement("D-14", "D-15", "D-16", "D-17", "D-18", "T-05"),
]

REFUSED_FUNCTIONS = Path(__file__).parent / "corpus" / "refused_functions.toml"
Corpus = Callable[[str, "Dialect"], list["Statement"]]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_hostile_statements_are_refused_by_the_expected_rules(
    dialect: Dialect, corpus: Corpus, guards: dict[str, Guard]
) -> None:
    failed = []
    for each in corpus("hostile", dialect):
        verdict = guards[dialect].check(each.text)
        rules = {violation.rule for violation in verdict.violations}
        # A refusal by accident is a refusal, and a defect.
        expected = rules <= each.rules if each.rules else not rules & {"GUARD_ERROR", "UNSTABLE"}
        message = verdict.user_message.startswith("The query was refused: ")
        if verdict.is_safe or verdict.safe_sql or not (rules and expected and message):
            failed.append((*each, verdict.violations))

    assert failed == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_legitimate_queries_pass(
    dialect: Dialect, corpus: Corpus, guards: dict[str, Guard]
) -> None:
    failed = [
        (problem, each.text)
        for each in corpus("legitimate", dialect)
        if (problem := problem_of(each.text, guards[dialect]))
    ]

    assert failed == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_saving_the_second_reading_changes_no_verdict(
    dialect: Dialect, corpus: Corpus, guards: dict[str, Guard], monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = [each.text for each in corpus("legitimate", dialect)[::3]]
    quick = [guards[dialect].check(statement) for statement in statements]
    monkeypatch.setattr(guard, "same_wording", lambda *_: False)
    monkeypatch.setattr(guard, "same_text", lambda *_: False)

    assert [guards[dialect].check(statement) for statement in statements] == quick


def test_no_function_of_a_hostile_statement_is_listed() -> None:
    for dialect, names in tomllib.loads(REFUSED_FUNCTIONS.read_text()).items():
        listed = load_functions(dialect)
        assert not set(names.split()) & (listed.scalar | listed.table), dialect


def problem_of(query: str, guard: Guard) -> str:
    """What is wrong with the verdict on a legitimate query; empty if nothing is."""
    verdict = guard.check(query)
    if verdict.violations or not verdict.is_safe or verdict.user_message:
        return f"refused: {verdict.violations}"
    again = guard.check(verdict.safe_sql)
    if (again.safe_sql, again.used_tables) != (verdict.safe_sql, verdict.used_tables):
        return f"another verdict on the safe query {verdict.safe_sql}"
    dialect = guard.policy.dialect
    grammar = Grammar(dialect)
    tokens = grammar.tokens(query)
    if same_text(tokens, query, verdict.safe_sql) and not same_wording(
        tokens, grammar.tokens(verdict.safe_sql)
    ):
        return "the same text, but not the same words"
    # An independent parser setting (functions understood) must see the same query.
    given, written = parse_one(query, read=dialect), parse_one(verdict.safe_sql, read=dialect)
    if verdict.limited:
        if dialect == "tsql" and isinstance(given, exp.SetOperation):
            written = written.find(exp.Subquery).this
        else:
            written.set("limit", given.args.get("limit"))
    return "" if _shape(written) == _shape(given) else f"written as {verdict.safe_sql}"


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
