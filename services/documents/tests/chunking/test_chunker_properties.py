import uuid
from collections.abc import Callable

import pytest
from document_pages import count_words, heading, page, paragraph, table, words
from hypothesis import given, settings
from hypothesis import strategies as st

from bos_documents.chunking.chunker import ChunkLimits, TokenCounter, chunk_pages
from bos_documents.chunking.chunks import ChunkKind
from bos_documents.chunking.sections import document_text
from bos_documents.parsing.blocks import Page

DOCUMENT = uuid.UUID(int=7)
LIMITS = ChunkLimits(target_tokens=16, max_tokens=32)

texts = st.text(alphabet="ab .!\n\té。\u0301\u200d", max_size=300) | st.integers(0, 120).map(words)
cells = st.text(alphabet="ab |\n", max_size=12) | st.integers(0, 60).map(words)
tables = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.tuples(*[cells] * width), min_size=1, max_size=12).map(
        lambda rows: table(*rows)
    )
)
blocks = st.one_of(texts.map(paragraph), st.builds(heading, texts, st.integers(-1, 9)), tables)
documents = st.lists(
    st.tuples(st.lists(blocks, max_size=8), st.sampled_from(["", "North", "South"])), max_size=4
).map(
    lambda drawn: [
        page(*content, number=number, title=title)
        for number, (content, title) in enumerate(drawn, 1)
    ]
)


def count_quarters(text: str) -> int:
    """Does not add up: the whole may count more than its parts together."""
    return len(text) // 4


@pytest.mark.requirement("G-05", "G-06")
@pytest.mark.parametrize("count", [count_words, count_quarters, len])
@settings(max_examples=100, deadline=None)
@given(pages=documents)
def test_chunks_cover_the_text_in_order_and_within_bounds(
    count: TokenCounter, pages: list[Page]
) -> None:
    text = document_text(pages)
    chunks = chunk_pages(DOCUMENT, pages, count, LIMITS)

    for each in chunks:
        span = text[each.start_char : each.end_char]
        assert each.text == span or (each.kind is ChunkKind.TABLE and each.text.endswith(span))
        assert each.tokens == count(each.text) <= LIMITS.max_tokens
        assert len(each.text) <= LIMITS.max_chars
        assert each.first_page <= each.last_page
        assert span.strip()
    assert [each.ordinal for each in chunks] == list(range(len(chunks)))
    ends = [0, *(each.end_char for each in chunks)]
    begins = [*(each.start_char for each in chunks), len(text)]
    gaps = [text[end:begin] for end, begin in zip(ends, begins, strict=True)]
    assert all(end <= begin for end, begin in zip(ends, begins, strict=True))
    assert not "".join(gaps).strip()
    assert len({each.chunk_id for each in chunks}) == len(chunks)
    assert chunks == chunk_pages(DOCUMENT, pages, count, LIMITS)


class CountedCharacters:
    """A token counter that adds up how much it was given."""

    def __init__(self) -> None:
        self.characters = 0

    def __call__(self, text: str) -> int:
        self.characters += len(text)
        return count_words(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: [page(*(paragraph(f"{words(10)} {n}") for n in range(100_000)))],
        lambda: [page(paragraph("x" * 5_000_000))],
        lambda: [page(paragraph("word " * 1_000_000))],
        lambda: [page(*(heading(f"Heading {n}", n % 9) for n in range(10_000)))],
        lambda: [page(heading("h" * 1_000_000), paragraph("body"))],
        lambda: [page(table(("k", "v"), ("x" * 2_000_000, "y z " * 500_000)))],
        lambda: [page(table(*((f"a{n}", f"b{n}") for n in range(100_000))))],
    ],
    ids=[
        "paragraphs",
        "line-without-spaces",
        "one-sentence",
        "headings",
        "giant-heading",
        "giant-cells",
        "rows",
    ],
)
def test_work_is_linear_in_the_text(make: Callable[[], list[Page]]) -> None:
    pages = make()
    count = CountedCharacters()
    chunks = chunk_pages(DOCUMENT, pages, count)

    size = len(document_text(pages))
    assert count.characters <= 8 * size
    assert sum(len(each.text) for each in chunks) <= 2 * size
    assert all(each.tokens <= 1024 and len(each.text) <= 8192 for each in chunks)
