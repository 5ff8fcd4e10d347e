"""Measures of a ranking against judged passages: nDCG, recall, reciprocal rank, refusals; pure."""

import math
import random
from collections.abc import Mapping, Sequence


def ndcg(ranking: Sequence[str], grades: Mapping[str, int], at: int = 10) -> float:
    """Normalised discounted cumulative gain of the first ``at`` places, 0 to 1.

    A grade g at place p (from 1) gains ``(2^g - 1) / log2(p + 1)``; the sum is divided by that of
    the best possible order (Burges et al. 2005, after Järvelin and Kekäläinen 2002).

    Raises:
        ValueError: nothing is judged relevant.
    """
    best = _gain(sorted(grades.values(), reverse=True)[:at])
    if best <= 0:
        raise ValueError("a question without relevant passages has no nDCG")
    return _gain([grades.get(each, 0) for each in ranking[:at]]) / best


def _gain(grades: Sequence[int]) -> float:
    return sum((2**grade - 1) / math.log2(place + 1) for place, grade in enumerate(grades, 1))


def recall(ranking: Sequence[str], grades: Mapping[str, int], at: int = 20) -> float:
    """Share of the relevant passages that are among the first ``at``.

    Raises:
        ValueError: nothing is judged relevant.
    """
    relevant = {each for each, grade in grades.items() if grade > 0}
    if not relevant:
        raise ValueError("a question without relevant passages has no recall")
    return len(relevant & set(ranking[:at])) / len(relevant)


def reciprocal_rank(ranking: Sequence[str], grades: Mapping[str, int]) -> float:
    """One divided by the place of the first relevant passage; 0 where there is none."""
    for place, each in enumerate(ranking, 1):
        if grades.get(each, 0) > 0:
            return 1 / place
    return 0.0


def mean(values: Sequence[float]) -> float:
    """Average; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def interval(
    values: Sequence[float], *, seed: int = 15, samples: int = 1000
) -> tuple[float, float]:
    """The middle 95 % of the averages of ``samples`` resamples (percentile bootstrap)."""
    if not values:
        return (0.0, 0.0)
    chance = random.Random(seed)
    means = sorted(mean(chance.choices(values, k=len(values))) for _ in range(samples))
    return means[int(samples * 0.025)], means[int(samples * 0.975)]


def threshold(answerable: Sequence[float], answered: float = 0.95) -> float:
    """The highest score at which at least the share ``answered`` of these is not refused.

    A question is refused when its score is below the threshold.

    Raises:
        ValueError: there are no scores, or the share is not within 0 and 1.
    """
    if not answerable or not 0 < answered <= 1:
        raise ValueError("scores, and a share above 0 up to 1")
    ordered = sorted(answerable, reverse=True)
    return ordered[math.ceil(answered * len(ordered)) - 1]


def refused(scores: Sequence[float], below: float) -> float:
    """Share of questions whose score is below the threshold."""
    return mean([float(each < below) for each in scores])
