import uuid

import pytest
from document_pages import count_words, heading, page, paragraph, table, words

from bos_documents.chunking.chunker import ChunkLimits, chunk_pages
from bos_documents.chunking.chunks import ChunkKind, TextChunk
from bos_documents.chunking.sections import document_text
from bos_documents.parsing.blocks import Page

DOCUMENT = uuid.UUID(int=7)
LIMITS = ChunkLimits(target_tokens=20, max_tokens=40)


def chunk(
    *pages: Page, limits: ChunkLimits = LIMITS, document_id: uuid.UUID = DOCUMENT
) -> list[TextChunk]:
    return chunk_pages(document_id, pages, count_words, limits)


@pytest.mark.requirement("G-04", "G-05")
def test_chunks_do_not_cross_sections() -> None:
    chunks = chunk(page(heading("A"), paragraph("one"), heading("B"), paragraph("two")))

    assert [(each.section_path, each.text) for each in chunks] == [
        (("A",), "A\n\none"),
        (("B",), "B\n\ntwo"),
    ]


def test_paragraphs_of_a_section_are_joined_up_to_the_target() -> None:
    chunks = chunk(page(*(paragraph(words(8, f"p{n}-")) for n in range(5))))

    assert [each.tokens for each in chunks] == [16, 16, 8]


@pytest.mark.requirement("G-05")
def test_paragraph_between_target_and_maximum_is_not_cut() -> None:
    chunks = chunk(page(paragraph(words(40)), paragraph("short")))

    assert [each.tokens for each in chunks] == [40, 1]


def test_paragraph_above_the_maximum_is_cut_at_sentences() -> None:
    sentences = [f"{words(8, f's{n}-')}." for n in range(6)]
    chunks = chunk(page(paragraph(" ".join(sentences))))

    assert [each.text for each in chunks] == [" ".join(sentences[n : n + 2]) for n in (0, 2, 4)]


def test_sentence_above_the_maximum_is_cut_at_words() -> None:
    chunks = chunk(page(paragraph(words(41))))

    assert " ".join(each.text for each in chunks) == words(41)
    assert all(each.tokens <= 20 for each in chunks)


def test_heading_stays_with_a_paragraph_that_exceeds_the_target() -> None:
    chunks = chunk(page(heading("Terms"), paragraph(words(30))))

    assert [each.tokens for each in chunks] == [31]


def test_path_follows_levels_also_where_they_jump() -> None:
    chunks = chunk(
        page(
            heading("1", 1),
            paragraph("a"),
            heading("1.0.1", 4),
            paragraph("b"),
            heading("1.1", 2),
            paragraph("c"),
            heading("2", 1),
            paragraph("d"),
        )
    )

    assert [each.section_path for each in chunks] == [
        ("1",),
        ("1", "1.0.1"),
        ("1", "1.1"),
        ("2",),
    ]


def test_heading_directly_above_a_deeper_one_is_in_its_section() -> None:
    chunks = chunk(page(heading("Part", 1), heading("Chapter", 2), paragraph("text")))

    assert [(each.section_path, each.text) for each in chunks] == [
        (("Part", "Chapter"), "Part\n\nChapter\n\ntext")
    ]


def test_headings_side_by_side_are_sections_of_their_own() -> None:
    chunks = chunk(page(heading("A"), heading("B"), paragraph("text")))

    assert [each.section_path for each in chunks] == [("A",), ("B",)]


def test_title_of_a_sheet_opens_a_section_and_closes_headings() -> None:
    chunks = chunk(
        page(heading("Head"), paragraph("a"), title="North"),
        page(paragraph("b"), number=2, title="South"),
    )

    assert [each.section_path for each in chunks] == [("North", "Head"), ("South",)]


def test_section_goes_on_over_pages_without_titles() -> None:
    (only,) = chunk(page(heading("A"), paragraph("one")), page(paragraph("two"), number=2))

    assert (only.first_page, only.last_page) == (1, 2)


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


def test_heading_directly_above_a_table_is_in_its_chunk() -> None:
    (only,) = chunk(page(heading("Prices"), table(("k", "v"), ("a", "b"))))

    assert only.kind is ChunkKind.TABLE
    assert only.text == "Prices\n\nk | v\na | b"


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


def test_long_row_is_split_with_the_header_repeated() -> None:
    chunks = chunk(page(table(("k", "v"), ("a", words(100)), ("z", "end"))))

    assert all(each.tokens <= 40 for each in chunks)
    assert all(each.text.startswith("k | v\n") for each in chunks)
    assert "z | end" in chunks[-1].text


def test_header_that_leaves_no_room_for_rows_is_not_repeated() -> None:
    chunks = chunk(page(table((words(15, "h"), "v"), *((f"a{n}", "b") for n in range(20)))))

    assert sum("h0 " in each.text for each in chunks) == 1
    assert all(each.tokens <= 40 for each in chunks)


def test_table_with_text_beside_its_rows_is_split_by_lines() -> None:
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
    one = page(paragraph("same"), heading("B"), paragraph("other"))

    ids = [each.chunk_id for each in chunk(one)]
    assert ids == [each.chunk_id for each in chunk(one)]
    assert not set(ids) & {each.chunk_id for each in chunk(one, document_id=uuid.UUID(int=8))}


def test_ids_of_other_sections_survive_an_insertion() -> None:
    rest = [heading("B"), paragraph("b"), heading("C"), paragraph("c")]
    before = chunk(page(heading("A"), paragraph("a"), *rest))
    after = chunk(page(heading("A"), paragraph("a"), paragraph("new"), *rest))

    assert [each.chunk_id for each in before][1:] == [each.chunk_id for each in after][1:]


def test_equal_texts_have_different_ids() -> None:
    same = [heading("A"), paragraph("text")] * 3

    assert len({each.chunk_id for each in chunk(page(*same))}) == 3


def test_empty_document_has_no_chunks() -> None:
    assert chunk() == []
    assert chunk(page(), page(paragraph(""), paragraph(" \n\t"), number=2)) == []


@pytest.mark.parametrize(("target", "maximum"), [(15, 40), (41, 40)])
def test_limits_out_of_order_are_refused(target: int, maximum: int) -> None:
    with pytest.raises(ValueError, match="target_tokens"):
        ChunkLimits(target, maximum)
