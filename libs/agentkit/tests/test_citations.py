"""Markers and quotations held against passages; answers by quotation."""

import pytest

from bos_agentkit.citations import checked_markers, found_quotes, quoted_answer

TEXT = "The carrier pays a penalty of 2% per day — at most “10%” of the\nfreight charge."


@pytest.mark.parametrize(
    ("answer", "text", "numbers", "unknown"),
    [
        ("Two per cent [3]. Ten at most [1].", "Two per cent [1]. Ten at most [2].", (3, 1), 0),
        ("Both agree [2, 3][2].", "Both agree [1][2][1].", (2, 3), 0),
        ("Half [1, 9].", "Half [1].", (1,), 1),
        ("Zero [0].", "Zero.", (), 1),
    ],
)
def test_unknown_markers_are_dropped_and_counted(
    answer: str, text: str, numbers: tuple[int, ...], unknown: int
) -> None:
    cited = checked_markers(answer, 3)
    assert (cited.text, cited.numbers, cited.unknown) == (text, numbers, unknown)


@pytest.mark.parametrize(
    "quote",
    [
        "A PENALTY of 2%  per day",
        'per day - at most "10%" of the freight charge',
    ],
)
def test_quotation_is_found_as_it_stands_in_the_passage(quote: str) -> None:
    found, missing = found_quotes([(1, quote)], {1: TEXT})
    assert missing == 0
    assert found[1] in TEXT


@pytest.mark.parametrize(
    ("passage", "quote"),
    [(1, "a penalty of 3% per day"), (2, "a penalty of 2% per day"), (1, "the")],
)
def test_quotation_that_the_passage_does_not_hold_is_dropped(passage: int, quote: str) -> None:
    assert found_quotes([(passage, quote)], {1: TEXT}) == ({}, 1)


def test_quoted_answer_is_the_sentence_nearest_to_the_question() -> None:
    texts = ["General terms apply. The notice period is six weeks. Signed in Bonn.", "\n\n"]
    assert quoted_answer("What is the notice period?", texts) == [
        (1, "The notice period is six weeks.")
    ]


def test_quoted_answer_of_one_endless_line_is_cut() -> None:
    [(number, sentence)] = quoted_answer("word", ["word " * 100_000])
    assert (number, len(sentence)) == (1, 400)
