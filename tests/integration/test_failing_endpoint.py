"""An endpoint that is down or slow: how often services of their own ask it for one question."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bos.gateway.v1 import RunStatus
from bos_testkit.waiting import eventually

if TYPE_CHECKING:
    from .conftest import StartHarness

pytestmark = pytest.mark.asyncio(loop_scope="module")

# By keywords both the sql and the computation agent are candidates.
BOTH = (
    "What would the monthly instalment be if we financed all open purchase orders over 24 months "
    "at 10.5 percent a year?"
)
# Memory's call for facts is tried once; it is not part of this harness.
MEMORY = 1


async def test_an_endpoint_that_fails_sees_eight_requests_at_most(
    start_harness: StartHarness,
) -> None:
    harness = await start_harness(apart=True, models={"breaker_s": 5.0})
    harness.model.quirks.always = 500
    outcome = await harness.ask(BOTH)

    assert outcome.plan.origin == "heuristic"
    assert {step.agent for step in outcome.plan.steps} == {"sql", "computation"}
    assert outcome.response.status == RunStatus.RUN_STATUS_FAILED
    assert harness.model.calls + MEMORY <= 8
    outcome.shows_no_internals()


async def test_an_endpoint_that_is_slow_is_asked_once_per_stage(
    start_harness: StartHarness,
) -> None:
    harness = await start_harness(apart=True, models={"timeout_s": 0.2, "stream_timeout_s": 0.2})
    harness.model.quirks.hangs = True
    outcome = await harness.ask(BOTH)

    stages = 2 + len(outcome.plan.steps)
    assert harness.model.calls <= stages
    assert all(attempts == 1 for attempts in map(outcome.attempts, outcome.results))
    await eventually(lambda: harness.model.in_flight == 0)
    assert harness.model.abandoned == harness.model.calls
    assert outcome.response.metadata.usage.abandoned_calls > 0
