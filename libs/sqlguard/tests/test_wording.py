"""The second reading that is saved where writing changed no word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bos_sqlguard import DIALECTS, Guard, guard
from bos_sqlguard.grammar import Grammar
from bos_sqlguard.wording import same_wording

if TYPE_CHECKING:
    from collections.abc import Callable

    from bos_sqlguard import Dialect

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
def test_texts_of_the_same_words_are_told_from_others(given: str, written: str, same: bool) -> None:
    grammar = Grammar("postgres")

    assert same_wording(grammar.tokens(given), grammar.tokens(written)) == same


@pytest.mark.parametrize("dialect", DIALECTS)
def test_saving_the_second_reading_changes_no_verdict(
    dialect: Dialect, corpus: Corpus, guards: dict[str, Guard], monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = [s for kind in ("legitimate", "hostile") for _, s in corpus(kind, dialect)]
    quick = [guards[dialect].check(statement) for statement in statements]
    monkeypatch.setattr(guard, "same_wording", lambda *_: False)

    assert [guards[dialect].check(statement) for statement in statements] == quick
