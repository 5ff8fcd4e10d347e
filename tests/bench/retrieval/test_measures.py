"""Measures of retrieval on rankings small enough to be computed by hand."""

import math

import pytest
from measures import interval, ndcg, recall, reciprocal_rank, refused, threshold

GRADES = {"a": 2, "b": 1}
# The best order gains 3 at the first place and 1 at the second one.
BEST = 3 + 1 / math.log2(3)


def test_the_best_order_has_an_ndcg_of_one_and_the_reverse_less() -> None:
    assert ndcg(["a", "b", "x"], GRADES) == pytest.approx(1)
    assert ndcg(["b", "a"], GRADES) == pytest.approx((1 + 3 / math.log2(3)) / BEST)


def test_what_is_behind_the_cut_gains_nothing() -> None:
    assert ndcg(["x", "a"], GRADES, at=2) == pytest.approx(3 / math.log2(3) / BEST)
    assert ndcg(["x", "a"], GRADES, at=1) == 0


def test_the_best_order_is_cut_as_well() -> None:
    assert ndcg(["a"], GRADES, at=1) == 1


def test_recall_counts_relevant_passages_among_the_first_ones() -> None:
    assert recall(["a", "x", "b"], GRADES, at=3) == 1
    assert recall(["a", "x", "b"], GRADES, at=2) == 0.5
    assert recall(["a"], {"a": 1, "c": 0}) == 1


@pytest.mark.parametrize("measure", [ndcg, recall])
def test_a_question_without_relevant_passages_has_no_measure(measure: object) -> None:
    with pytest.raises(ValueError, match="without relevant passages"):
        measure(["a"], {"a": 0})  # type: ignore[operator]


def test_reciprocal_rank_is_that_of_the_first_relevant_passage() -> None:
    assert reciprocal_rank(["x", "b", "a"], GRADES) == 0.5
    assert reciprocal_rank(["x", "c"], {**GRADES, "c": 0}) == 0


def test_threshold_answers_the_share_that_is_asked_for_and_not_one_question_less() -> None:
    scores = [number / 20 for number in range(1, 21)]
    below = threshold(scores, 0.95)
    assert below == 0.1
    assert refused(scores, below) == 0.05
    assert refused([0.05, 0.09, 0.1], below) == pytest.approx(2 / 3)
    assert threshold(scores, 1) == 0.05


@pytest.mark.parametrize(("scores", "share"), [([], 0.95), ([1.0], 0), ([1.0], 1.1)])
def test_threshold_needs_scores_and_a_share(scores: list[float], share: float) -> None:
    with pytest.raises(ValueError, match="a share above 0"):
        threshold(scores, share)


def test_interval_holds_the_average_and_is_the_same_each_time() -> None:
    low, high = interval([0.0, 1.0] * 50)
    assert low < 0.5 < high
    assert low > 0.3
    assert high < 0.7
    assert interval([0.0, 1.0] * 50) == (low, high)
    assert interval([0.4] * 10) == pytest.approx((0.4, 0.4))
