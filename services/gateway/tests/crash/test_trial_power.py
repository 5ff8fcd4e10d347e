"""Trial: PostgreSQL and every gateway gone in one moment; nothing that was seen is."""

import pytest
from gateway_harness.crash.power import power_cuts

pytestmark = pytest.mark.postgres


@pytest.mark.timeout(600)
async def test_power_cut_loses_nothing_that_clients_saw() -> None:
    power, verdict = await power_cuts(3, seed=20261122)
    assert power.checked
    assert power.lost == set()
    assert verdict.broken == []
    assert verdict.runs > 0
