from typing import Any

import pytest

from bos_chassis.interceptors import Sampled
from bos_chassis.telemetry import Telemetry
from bos_testkit.waiting import eventually


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry.for_tests()


def summaries(telemetry: Telemetry) -> list[Any]:
    return [line["lines"] for line in telemetry.logs if line["event"] == "lines left out"]


async def test_first_of_kind_are_let_through_and_others_counted(telemetry: Telemetry) -> None:
    sampled = Sampled(telemetry.logger("test"), "call", most=2, interval_s=3600)
    assert [sampled.admits("a") for _ in range(5)] == [True, True, False, False, False]
    assert sampled.admits("b")
    assert summaries(telemetry) == []
    sampled.close()
    assert summaries(telemetry) == [{"a": 3}]
    assert sampled.admits("a")


async def test_count_is_logged_when_the_interval_ends(telemetry: Telemetry) -> None:
    sampled = Sampled(telemetry.logger("test"), "call", most=1, interval_s=0.1)
    while sampled.admits("a"):
        pass
    await eventually(lambda: len(summaries(telemetry)) == 1)


async def test_kinds_are_bounded(telemetry: Telemetry) -> None:
    sampled = Sampled(telemetry.logger("test"), "call", most=1, interval_s=3600)
    assert sum(sampled.admits(str(kind)) for kind in range(1000)) < 50
    sampled.close()
    (left_out,) = summaries(telemetry)
    assert len(left_out) < 50
