import pytest

from bos_documents.context import in_context
from bos_documents.index.port import Scored
from bos_documents.index.stop_words import StopWords
from bos_documents.search.coverage import content_words, coverage

LEG = tuple(Scored(name, 9.0 - place) for place, name in enumerate("abcdefgh"))


def test_stop_words_are_ignored_and_word_forms_unified() -> None:
    words = content_words(
        "What do the suppliers deliver, and the Supplier's delivery?", StopWords()
    )

    assert words == ("suppli", "delive")


def test_question_of_stop_words_has_no_words_and_no_coverage() -> None:
    words = content_words("what is that?", StopWords())

    assert words == ()
    assert coverage(words, LEG, {"a": "what is that"}) == 0


def test_words_are_bounded() -> None:
    assert len(content_words(" ".join(f"word{n}" for n in range(1000)), StopWords())) <= 32


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("suppliers pay a penalty for delay", 1),
        # Of weights log(1 + 1.5 / 1.5) and log(1 + 1.5 / 0.5).
        ("a penalty", 1 / 3),
        ("payments of others", 0),
        ("the antipenalty of a resupplier", 0),
    ],
)
def test_coverage_is_the_word_share_of_the_best_passage(text: str, share: float) -> None:
    covered = coverage(("suppli", "penalt"), LEG, {"a": text})

    assert covered == pytest.approx(share)


def test_rare_word_counts_more_than_a_common_one() -> None:
    common = dict.fromkeys("bcdefgh", "supplier")

    with_rare = coverage(("suppli", "penalt"), LEG, {"a": "penalty", **common})
    with_common = coverage(("suppli", "penalt"), LEG, {"a": "nothing", **common})

    assert 0.5 < with_rare < 1
    assert 0 < with_common < 0.5


@pytest.mark.parametrize(("holder", "found"), [("e", True), ("f", False)])
def test_passages_far_down_do_not_cover_a_question(holder: str, found: bool) -> None:
    texts = dict.fromkeys("abcdefgh", "") | {holder: "penalty"}

    assert (coverage(("penalt",), LEG, texts) > 0) is found


def test_question_without_spaces_has_no_chance_coverage() -> None:
    words = content_words("納期が遅れた場合の違約金はいくらですか", StopWords())

    assert coverage(words, LEG, {"a": "違約金は五パーセント"}) < 1


def test_passage_stands_under_its_document_and_its_headings() -> None:
    text = in_context("MSA-2017-0500_final.v2.pdf", ["Delivery", "Delay\nand penalty"], "The text.")

    assert text == "MSA-2017-0500 final.v2\nDelivery\nDelay and penalty\nThe text."


def test_long_headings_do_not_outweigh_the_passage() -> None:
    assert len(in_context("a.pdf", ["heading " * 500], "The text.")) < 320


@pytest.mark.parametrize("name", ["", "../../x.pdf"])
def test_awkward_names_make_a_context(name: str) -> None:
    assert in_context(name, [], "The text.").endswith("\nThe text.")
