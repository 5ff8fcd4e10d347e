"""Trial: a short round of the random crash test, hostile agents and a poison included."""

import os
from collections.abc import Sequence

import pytest
from gateway_harness.crash.round import RoundPlan, Stats, one_round

pytestmark = pytest.mark.postgres


@pytest.mark.timeout(900)
@pytest.mark.parametrize("only", [(), ("power cut",)], ids=["all", "power cuts"])
async def test_random_crashes_lose_double_and_fail_no_innocent_run(only: Sequence[str]) -> None:
    plan = RoundPlan(
        seed=20261122, seconds=10.0, lease_s=3.0, pause_s=1.0, only=only, log=os.devnull
    )
    stats = Stats()
    verdict = await one_round(plan, stats)
    assert verdict.broken == []
    assert stats.kills > 0
    assert stats.happened["died at its start"] > 0
    assert stats.happened["power cut" if only else "killed by a poison"] > 0
    assert verdict.runs > 0
