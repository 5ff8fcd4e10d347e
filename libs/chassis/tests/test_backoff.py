from itertools import pairwise
from math import inf

import pytest

from bos_chassis.backoff import Backoff


def test_waits_grow_by_the_factor_up_to_the_cap() -> None:
    backoff = Backoff(first_s=0.5, cap_s=10.0, factor=3.0)

    assert [backoff.delay(attempt) for attempt in range(1, 6)] == [0.5, 1.5, 4.5, 10.0, 10.0]


def test_first_wait_is_capped_too() -> None:
    assert Backoff(first_s=5.0, cap_s=1.0).delay(1) == 1.0


@pytest.mark.parametrize(
    ("jitter", "shortest", "middle", "longest"),
    [(0.0, 8.0, 8.0, 8.0), (0.5, 4.0, 6.0, 8.0), (1.0, 0.0, 4.0, 8.0)],
)
def test_jitter_shortens_the_capped_wait(
    jitter: float, shortest: float, middle: float, longest: float
) -> None:
    backoff = Backoff(first_s=1.0, cap_s=8.0, jitter=jitter)

    assert [backoff.delay(20, random) for random in (0.0, 0.5, 1.0)] == [shortest, middle, longest]


def test_after_endless_attempts_the_wait_is_the_cap() -> None:
    assert Backoff(first_s=0.1, cap_s=60.0).delay(1_000_000) == 60.0
    assert Backoff(first_s=0.1).delay(1_000_000) == inf


def test_no_first_wait_means_no_wait_ever() -> None:
    assert Backoff(first_s=0.0).delay(1_000_000) == 0.0


def test_factor_of_one_waits_always_the_same() -> None:
    waits = [Backoff(first_s=0.2, factor=1.0).delay(attempt) for attempt in range(1, 9)]

    assert all(one == other for one, other in pairwise(waits))
