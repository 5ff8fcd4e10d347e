from math import inf
from typing import Any

import pytest

from bos_chassis.backoff import Backoff


@pytest.mark.parametrize(
    ("given", "attempts", "waits"),
    [
        ({"first_s": 0.5, "cap_s": 10.0, "factor": 3.0}, (1, 2, 3, 4, 5), [0.5, 1.5, 4.5, 10, 10]),
        ({"first_s": 5.0, "cap_s": 1.0}, (1,), [1.0]),
        ({"first_s": 0.1, "cap_s": 60.0}, (1_000_000,), [60.0]),
        ({"first_s": 0.1}, (1_000_000,), [inf]),
        ({"first_s": 0.0}, (1_000_000,), [0.0]),
        ({"first_s": 0.2, "factor": 1.0}, (1, 2, 9), [0.2, 0.2, 0.2]),
    ],
)
def test_waits_grow_by_the_factor_up_to_the_cap(
    given: Any, attempts: tuple[int, ...], waits: list[float]
) -> None:
    assert [Backoff(**given).delay(attempt) for attempt in attempts] == waits


@pytest.mark.parametrize(
    ("jitter", "waits"), [(0.0, [8, 8, 8]), (0.5, [4, 6, 8]), (1.0, [0, 4, 8])]
)
def test_jitter_shortens_the_capped_wait(jitter: float, waits: list[float]) -> None:
    backoff = Backoff(first_s=1.0, cap_s=8.0, jitter=jitter)
    assert [backoff.delay(20, random) for random in (0.0, 0.5, 1.0)] == waits
