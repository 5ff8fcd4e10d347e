"""Numbering of the sources of all results."""

from typing import Any

import pytest

from bos.common.v1 import Source, SourceType
from bos_composer.citations import merge

from . import conftest as make

pytestmark = pytest.mark.requirement("K-10")


def test_sources_are_deduplicated_and_markers_renumbered() -> None:
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


def test_passages_without_an_id_are_compared_by_their_text() -> None:
    sources = [make.document("A", excerpt="x"), make.document("A", excerpt="y")]
    citations = merge([make.result(sources=sources), make.result(sources=sources)])
    assert len(citations.sources) == 2


def test_another_quotation_of_the_same_passage_is_another_source() -> None:
    def quoting(words: str) -> Any:
        source = make.document("Terms", reference="c-1", excerpt=words)
        return make.result("rag", answer="So it is [1].", sources=[source])

    citations = merge([quoting("five days"), quoting("two percent"), quoting("five  days")])
    assert [source.excerpt for source in citations.sources] == ["five days", "two percent"]
    assert citations.answers == ("So it is [1].", "So it is [2].", "So it is [1].")


def test_number_without_a_source_is_dropped_and_counted() -> None:
    rag = make.result(
        "rag", answer="Five [1]; two [2].", sources=[make.document("Terms", reference="c-1")]
    )
    citations = merge([rag, rag])
    assert citations.answers == ("Five [1]; two.",) * 2
    assert citations.unknown == 2
    assert merge([make.result("rag", answer="Five [1].", sources=rag.sources)]).unknown == 0


def test_numbers_in_brackets_are_values_without_sources() -> None:
    table = Source(type=SourceType.SOURCE_TYPE_DATABASE, title="orders")
    listed = make.result("sql", answer="The orders are [12, 15], in x[0].", sources=[table])
    citations = merge([listed])
    assert citations.answers == ("The orders are (12, 15), in x[0].",)
    assert citations.unknown == 0
