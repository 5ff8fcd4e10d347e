"""Numbering of the sources of all results."""

from __future__ import annotations

from typing import Any

import pytest

from bos_composer.citations import merge, renumber

pytestmark = pytest.mark.requirement("K-10")


def test_sources_are_deduplicated_and_markers_renumbered(make: Any) -> None:
    first = make.result(
        "rag",
        answer="Budget is 5 [2], cost is 4 [1].",
        sources=[make.document("Cost", reference="c-1"), make.document("Budget", reference="c-2")],
    )
    second = make.result(
        "web",
        answer="Same budget [1]; news [2][1].",
        sources=[make.document("Budget again", reference="c-2"), make.document("News")],
    )
    citations = merge([first, second])
    assert [source.title for source in citations.sources] == ["Cost", "Budget", "News"]
    assert citations.answers == ("Budget is 5 [2], cost is 4 [1].", "Same budget [2]; news [3][2].")
    assert second.answer == "Same budget [1]; news [2][1].", "results are never modified"


def test_passages_without_an_id_are_compared_by_their_text(make: Any) -> None:
    sources = [make.document("A", excerpt="x"), make.document("A", excerpt="y")]
    citations = merge([make.result(sources=sources), make.result(sources=sources)])
    assert len(citations.sources) == 2


@pytest.mark.parametrize(
    ("text", "numbers", "expected"),
    [
        ("a [1] b [2]", [5, 6], "a [5] b [6]"),
        ("swap [1][2]", [2, 1], "swap [2][1]"),
        ("both [1, 2]", [3, 3], "both [3]"),
        ("rose[1].", [4], "rose[4]."),
        ("dangling [3]", [4], "dangling (3)"),
        ("half [1,9]", [4], "half (1,9)"),
        ("row[0] and f(x)[2]", [], "row[0] and f(x)[2]"),
        ("[1](https://example.org)", [4], "[1](https://example.org)"),
        ("", [1], ""),
    ],
)
def test_markers(text: str, numbers: list[int], expected: str) -> None:
    assert renumber(text, numbers) == expected
