"""Trial: one short round of the random crash test, hostile agents and a poison included."""

import os

import pytest
from gateway_harness.crash.round import RoundPlan, one_round
from gateway_harness.crash.stats import Stats

pytestmark = pytest.mark.postgres


@pytest.mark.timeout(900)
async def test_random_crashes_lose_double_and_fail_no_innocent_run() -> None:
    plan = RoundPlan(seed=20261122, seconds=10.0, lease_s=3.0, pause_s=1.0, only=(), log=os.devnull)
    stats = Stats()
    verdict = await one_round(plan, stats)
    assert verdict.broken == []
    assert stats.kills > 0
    assert stats.happened["died at its start"] > 0
    assert verdict.runs > 0
