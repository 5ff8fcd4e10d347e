"""The judged set holds what the evaluation promises."""

from collections import Counter

from judged_set import Kind, Question, Split, passages, questions, shared_words
from measures import mean


def of(kind: Kind) -> list[Question]:
    return [each for each in questions() if each.kind is kind]


def test_there_are_enough_passages_and_each_has_its_id_title_and_text() -> None:
    found = passages()
    assert len(found) >= 1000
    assert len({each.id for each in found}) == len(found)
    assert all(each.document and each.section for each in found)
    assert all(20 <= len(each.text.split()) <= 200 for each in found)
    assert len({each.text for each in found}) == len(found)


def test_there_are_enough_questions_of_each_kind() -> None:
    answered = [each for each in questions() if each.kind is not Kind.UNANSWERABLE]
    assert len(answered) >= 150
    assert len(of(Kind.PARAPHRASE)) >= len(answered) / 3
    assert len(of(Kind.IDENTIFIER)) >= len(answered) / 3
    assert len(of(Kind.UNANSWERABLE)) >= 30
    assert len({each.id for each in questions()}) == len(questions())
    assert len({each.text for each in questions()}) == len(questions())


def test_half_of_each_kind_is_held_out() -> None:
    counted = Counter((each.kind, each.split) for each in questions())
    for kind in Kind:
        assert abs(counted[kind, Split.DEV] - counted[kind, Split.HELD]) <= 2


def test_judgements_name_passages_and_only_unanswerable_questions_have_none() -> None:
    ids = {each.id for each in passages()}
    for each in questions():
        assert set(each.relevant) <= ids, each.id
        assert set(each.relevant.values()) <= {1, 2}, each.id
        assert (2 in each.relevant.values()) == (each.kind is not Kind.UNANSWERABLE), each.id


def test_paraphrases_share_few_words_with_what_answers_them_and_plain_questions_many() -> None:
    texts = {each.id: f"{each.document} {each.section} {each.text}" for each in passages()}

    def shared(kind: Kind) -> float:
        return mean(
            [
                max(shared_words(each.text, texts[key]) for key, grade in each.relevant.items())
                for each in of(kind)
                if each.relevant
            ]
        )

    assert shared(Kind.PARAPHRASE) < 0.25
    assert shared(Kind.PLAIN) > 0.5


def test_shared_words_are_counted_by_their_beginnings_and_common_ones_not() -> None:
    assert shared_words("the pumps of which plant", "a pump in the planted field") == 0.5
    assert shared_words("pumping stations", "pumpin station") == 1
    assert shared_words("which of the", "which of the") == 0


def test_identifiers_are_in_the_passages_that_answer_and_nowhere_for_the_unanswerable() -> None:
    everything = " ".join(f"{each.section} {each.text}" for each in passages()).casefold()
    for each in of(Kind.UNANSWERABLE):
        for word in each.text.casefold().rstrip("?").split():
            if any(char.isdigit() for char in word) and "-" in word:
                assert word not in everything, each.text
