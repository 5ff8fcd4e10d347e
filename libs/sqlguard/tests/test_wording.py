"""The second reading that is saved where writing changed no word."""

from collections.abc import Callable

import pytest
from sqlglot.dialects.dialect import Dialect as SqlglotDialect

from bos_sqlguard import DIALECTS, Dialect, Guard
from bos_sqlguard.grammar import Grammar
from bos_sqlguard.wording import same_text, same_wording

Corpus = Callable[[str, Dialect], list[tuple[str, str]]]


@pytest.mark.parametrize(
    ("given", "written", "same"),
    [
        ("SELECT a FROM orders", "SELECT a FROM orders", True),
        ("select a\n  from orders -- all", "SELECT a FROM orders", True),
        ("SELECT a,b FROM orders WHERE a=1", "SELECT a, b FROM orders WHERE a = 1", True),
        ("SELECT a FROM orders", "SELECT a FROM orders LIMIT 201", True),
        ("SELECT a FROM orders", "SELECT a FROM orders OFFSET 201", False),
        ("SELECT a FROM orders", "SELECT a FROM orders LIMIT b", False),
        ("SELECT a FROM orders", "SELECT a FROM orders LIMIT 201 OFFSET 1", False),
        ("SELECT a FROM orders LIMIT 500", "SELECT a FROM orders LIMIT 201", False),
        ("SELECT INTERVAL '1'", "SELECT INTERVAL '1' LIMIT 201", False),
        ("SELECT A FROM orders", "SELECT a FROM orders", False),
        ("SELECT 'A' FROM orders", "SELECT 'a' FROM orders", False),
        ("SELECT a FROM orders", 'SELECT "a" FROM orders', False),
        ("SELECT a FROM orders", "SELECT a FROM salaries", False),
        ("SELECT a FROM orders", "SELECT a", False),
        ("SELECT a b FROM orders", "SELECT a AS b FROM orders", False),
        ("SELECT a. b FROM orders AS a", "SELECT a.b FROM orders AS a", False),
    ],
)
def test_texts_of_the_same_words_are_recognised(given: str, written: str, same: bool) -> None:
    grammar = Grammar("postgres")

    assert same_wording(grammar.tokens(given), grammar.tokens(written)) == same
    assert same_text(grammar.tokens(given), given, written) == same


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("SELECT 1 - - 1", "SELECT 1 --1"),
        ("SELECT 1 < = 1", "SELECT 1 <= 1"),
        ("SELECT a FROM orders", "SELECT aFROM orders"),
        ("SELECT N 'x'", "SELECT N'x'"),
        ("SELECT 1 / * 2", "SELECT 1 /* 2"),
        ("SELECT a ORDER/**/BY b", "SELECT a ORDER BY b"),
        ("SELECT a\u00a0, b", "SELECT a, b"),
        ("SELECT a FROM orders", "SELECT a FROM orders LIMIT 201 -- x"),
        ("SELECT a FROM orders", "SELECT a FROM orders; DROP"),
        ("SELECT a FROM orders", "SELECT a /* x */ FROM orders"),
        ("SELECT a /* x */ FROM orders", "SELECT a FROM orders"),
        ("SELECT 'a  b'", "SELECT 'a b'"),
        ("SELECT a FROM orders", "SELECT a FROM orderz"),
        ("SELECT a FROM ordeſ", "SELECT a FROM ordeS"),
    ],
)
def test_what_could_be_read_otherwise_is_split_to_see(given: str, written: str) -> None:
    assert not same_text(Grammar("postgres").tokens(given), given, written)


def test_brackets_and_commas_are_part_of_no_other_sign() -> None:
    for dialect in DIALECTS:
        signs = SqlglotDialect.get_or_raise(dialect).tokenizer_class.KEYWORDS
        assert not [sign for sign in signs if len(sign) > 1 and set(sign) & set("(),")]


@pytest.mark.parametrize("dialect", ["postgres", "tsql"])
def test_the_second_reading_is_saved_for_usual_queries(
    dialect: Dialect, corpus: Corpus, guards: dict[str, Guard]
) -> None:
    statements = [given for _, given in corpus("legitimate", dialect)[::3]]
    saved = [
        given
        for given in statements
        if same_text(Grammar(dialect).tokens(given), given, guards[dialect].check(given).safe_sql)
    ]

    # T-SQL writes TOP in the middle.
    assert len(saved) >= (0.3 * len(statements) if dialect != "tsql" else 1)
