import uuid
from collections.abc import Callable

import pytest
from document_pages import count_words, heading, page, paragraph, table, words
from hypothesis import given, settings
from hypothesis import strategies as st

from bos_documents.chunking.chunker import ChunkLimits, TokenCounter, chunk_pages
from bos_documents.chunking.chunks import ChunkKind, TextChunk
from bos_documents.chunking.sections import document_text
from bos_documents.parsing.blocks import Page

DOCUMENT = uuid.UUID(int=7)
LIMITS = ChunkLimits(target_tokens=20, max_tokens=40)


def chunk(
    *pages: Page, limits: ChunkLimits = LIMITS, document_id: uuid.UUID = DOCUMENT
) -> list[TextChunk]:
    return chunk_pages(document_id, pages, count_words, limits)


SECTIONS = {
    "chunks do not cross sections": (
        [page(heading("A"), paragraph("one"), heading("B"), paragraph("two"))],
        [(("A",), "A\n\none"), (("B",), "B\n\ntwo")],
    ),
    "levels that jump": (
        [
            page(
                heading("1"), heading("1.0.1", 4), paragraph("b"), heading("1.1", 2), paragraph("c")
            )
        ],
        [(("1", "1.0.1"), "1\n\n1.0.1\n\nb"), (("1", "1.1"), "1.1\n\nc")],
    ),
    "headings side by side": (
        [page(heading("A"), heading("B"), paragraph("text"))],
        [(("A",), "A"), (("B",), "B\n\ntext")],
    ),
    "the title of a sheet closes headings": (
        [
            page(heading("Head"), paragraph("a"), title="North"),
            page(paragraph("b"), number=2, title="South"),
        ],
        [(("North", "Head"), "Head\n\na"), (("South",), "b")],
    ),
    "a section goes on over pages": (
        [page(heading("A"), paragraph("one")), page(paragraph("two"), number=2)],
        [(("A",), "A\n\none\n\ntwo")],
    ),
    "no text": ([page(), page(paragraph(""), paragraph(" \n\t"), number=2)], []),
}


@pytest.mark.requirement("G-04", "G-05")
@pytest.mark.parametrize("name", SECTIONS)
def test_sections_follow_headings_and_titles(name: str) -> None:
    pages, expected = SECTIONS[name]
    chunks = chunk(*pages)
    assert [(each.section_path, each.text) for each in chunks] == expected
    if len(chunks) == 1:
        assert (chunks[0].first_page, chunks[0].last_page) == (1, 2)


SIZES = {
    "joined up to the target": (
        page(*(paragraph(words(8, f"p{n}-")) for n in range(5))),
        [16, 16, 8],
    ),
    "between target and maximum": (page(paragraph(words(40)), paragraph("short")), [40, 1]),
    "under a heading": (page(heading("Terms"), paragraph(words(30))), [31]),
}


@pytest.mark.requirement("G-05")
@pytest.mark.parametrize("name", SIZES)
def test_paragraphs_are_joined_and_not_cut_below_the_maximum(name: str) -> None:
    content, tokens = SIZES[name]
    assert [each.tokens for each in chunk(content)] == tokens


def test_paragraph_above_the_maximum_is_cut_at_sentences() -> None:
    sentences = [f"{words(8, f's{n}-')}." for n in range(6)]
    chunks = chunk(page(paragraph(" ".join(sentences))))

    assert [each.text for each in chunks] == [" ".join(sentences[n : n + 2]) for n in (0, 2, 4)]


def test_sentence_above_the_maximum_is_cut_at_words() -> None:
    chunks = chunk(page(paragraph(words(41))))

    assert " ".join(each.text for each in chunks) == words(41)
    assert all(each.tokens <= 20 for each in chunks)


@pytest.mark.requirement("G-06")
def test_first_chunk_of_a_section_is_the_parent_of_the_others() -> None:
    long = [paragraph(words(15, f"p{n}-")) for n in range(3)]
    first, second, third, other = chunk(page(heading("A"), *long, heading("B"), paragraph("x")))

    assert first.parent_chunk_id is None
    assert second.parent_chunk_id == third.parent_chunk_id == first.chunk_id
    assert other.parent_chunk_id is None


@pytest.mark.requirement("G-05")
def test_table_is_one_chunk_up_to_the_maximum() -> None:
    rows = [("k", "v"), *((f"a{n}", f"b{n}") for n in range(12))]  # 39 words with the bars
    text, whole, after = chunk(page(paragraph("before"), table(*rows), paragraph("after")))

    assert (text.kind, whole.kind, after.kind) == (ChunkKind.TEXT, ChunkKind.TABLE, ChunkKind.TEXT)
    assert whole.tokens == 39
    assert whole.text == table(*rows).text
    (only,) = chunk(page(heading("Prices"), table(("k", "v"), ("a", "b"))))
    assert (only.kind, only.text) == (ChunkKind.TABLE, "Prices\n\nk | v\na | b")


def test_longer_table_is_split_by_rows_with_its_header_repeated() -> None:
    rows = [("k", "v"), *((f"a{n}", f"b{n}") for n in range(13))]  # 42 words
    chunks = chunk(page(table(*rows)))

    assert chunks[0].text.startswith("k | v\na0 | b0\n")
    assert all(each.text.startswith("k | v\n") for each in chunks)
    assert sum(each.text.count("\n") for each in chunks) == 13
    assert all(each.tokens <= 20 for each in chunks)
    text = document_text([page(table(*rows))])
    assert [text[each.start_char : each.end_char] for each in chunks[1:]] == [
        each.text.removeprefix("k | v\n") for each in chunks[1:]
    ]


def test_long_rows_and_odd_tables_are_split() -> None:
    chunks = chunk(page(table(("k", "v"), ("a", words(100)), ("z", "end"))))

    assert all(each.tokens <= 40 for each in chunks)
    assert all(each.text.startswith("k | v\n") for each in chunks)
    assert "z | end" in chunks[-1].text
    # A header that leaves no room for rows is not repeated.
    chunks = chunk(page(table((words(15, "h"), "v"), *((f"a{n}", "b") for n in range(20)))))
    assert sum("h0 " in each.text for each in chunks) == 1
    assert all(each.tokens <= 40 for each in chunks)
    block = table(("k", "v"), *((f"a{n}", f"b{n}") for n in range(13)))
    odd = type(block)(block.kind, block.text, rows=(("other",),), header_rows=1)
    assert [each.text for each in chunk(page(odd))] == [each.text for each in chunk(page(block))]


def test_chunk_with_a_recognised_page_is_marked() -> None:
    read, typed = chunk(
        page(heading("A"), paragraph("x"), text="recognised"),
        page(heading("B"), paragraph("y"), number=2),
    )

    assert (read.recognised, typed.recognised) == (True, False)


@pytest.mark.requirement("G-06")
def test_chunk_ids_are_stable_and_differ_between_documents() -> None:
    rest = [heading("B"), paragraph("b"), *[heading("C"), paragraph("same")] * 3]
    one = page(heading("A"), paragraph("a"), *rest)
    ids = [each.chunk_id for each in chunk(one)]
    assert ids == [each.chunk_id for each in chunk(one)]
    assert len(set(ids)) == 5
    assert not set(ids) & {each.chunk_id for each in chunk(one, document_id=uuid.UUID(int=8))}
    longer = chunk(page(heading("A"), paragraph("a"), paragraph("new"), *rest))
    assert [each.chunk_id for each in longer][1:] == ids[1:]


@pytest.mark.parametrize(("target", "maximum"), [(15, 40), (41, 40)])
def test_limits_out_of_order_are_refused(target: int, maximum: int) -> None:
    with pytest.raises(ValueError, match="target_tokens"):
        ChunkLimits(target, maximum)


SMALL = ChunkLimits(target_tokens=16, max_tokens=32)

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
    chunks = chunk_pages(DOCUMENT, pages, count, SMALL)

    for each in chunks:
        span = text[each.start_char : each.end_char]
        assert each.text == span or (each.kind is ChunkKind.TABLE and each.text.endswith(span))
        assert each.tokens == count(each.text) <= SMALL.max_tokens
        assert len(each.text) <= SMALL.max_chars
        assert each.first_page <= each.last_page
        assert span.strip()
    assert [each.ordinal for each in chunks] == list(range(len(chunks)))
    ends = [0, *(each.end_char for each in chunks)]
    begins = [*(each.start_char for each in chunks), len(text)]
    gaps = [text[end:begin] for end, begin in zip(ends, begins, strict=True)]
    assert all(end <= begin for end, begin in zip(ends, begins, strict=True))
    assert not "".join(gaps).strip()
    assert len({each.chunk_id for each in chunks}) == len(chunks)
    assert chunks == chunk_pages(DOCUMENT, pages, count, SMALL)


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
