"""What operators see of requests that wait for people, and of those that wait no more."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from gateway_harness.harness import Client, Harness
from prometheus_client import CollectorRegistry

from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    APPROVAL_DECISION_DENY,
    Approval,
    ApprovalServiceStub,
    RespondApprovalRequest,
)
from bos.planner.v1 import Step
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log.approvals import ApprovalGauges
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect, open_database
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

WAITING, OLDEST = "bos_gateway_approvals_waiting", "bos_gateway_approvals_oldest_seconds"
DEPLOYING = {"agent": "deploy", "tools": "trigger_deployment"}
ROLLING_BACK = {"agent": "deploy", "tools": "rollback_deployment"}


def acting(task: str) -> Step:
    made = step("a", "deploy", task)
    made.tools.extend(("trigger_deployment", "rollback_deployment"))
    return made


@pytest.fixture
async def agent(harness: Harness) -> DeployAgent:
    agent = DeployAgent()
    await harness.add_agent(agent)
    return agent


@asynccontextmanager
async def asking(
    harness: Harness, gateway: Client, task: str
) -> AsyncIterator[tuple[Approval, Any]]:
    """A run that waits, and the stream that follows it."""
    harness.planner.steps = [acting(task)]
    call = gateway.stream(task)
    try:
        async for message in call:
            if message.event.HasField("approval_requested"):
                yield message.event.approval_requested.approval, call
                break
    finally:
        call.cancel()


async def end(gateway: Client, asked: tuple[Approval, Any], decision: int) -> None:
    approval, call = asked
    request = RespondApprovalRequest(approval_id=approval.approval_id, decision=decision)
    await ApprovalServiceStub(gateway.channel).RespondApproval(request, timeout=20)
    async for message in call:
        if message.event.HasField("run_finished"):
            return


async def test_every_gateway_counts_all_that_wait(harness: Harness, agent: DeployAgent) -> None:
    async with (
        harness.gateway(lease_s=15.0) as one,
        asking(harness, one, "deploy shop 1.2"),
        asking(harness, one, "deploy shop 1.3"),
        asking(harness, one, "roll back shop"),
        harness.gateway(lease_s=15.0) as other,
    ):
        await eventually(lambda: other.metric(WAITING, **DEPLOYING) == 2)
        await eventually(lambda: one.metric(WAITING, **DEPLOYING) == 2)
        for gateway in (one, other):
            assert gateway.metric(WAITING, **ROLLING_BACK) == 1


async def test_what_waits_no_more_is_shown_as_none(harness: Harness, agent: DeployAgent) -> None:
    metrics = GatewayMetrics(registry := CollectorRegistry())
    async with (
        harness.gateway(lease_s=15.0) as gateway,
        asking(harness, gateway, "deploy shop 1.2") as first,
        asking(harness, gateway, "deploy shop 1.3") as second,
        connect(harness.dsn, schema=SCHEMA) as connection,
        open_database(harness.dsn, schema=SCHEMA, max_size=1) as pool,
    ):
        await connection.execute(
            "UPDATE approvals SET created_at = now() - interval '90 seconds' "
            "WHERE approval_id = $1",
            first[0].approval_id,
        )
        waiting = ApprovalGauges(pool, metrics)

        async def seen() -> tuple[float | None, float]:
            await waiting.refresh()
            age_s = registry.get_sample_value(OLDEST, DEPLOYING)
            assert age_s is not None
            return registry.get_sample_value(WAITING, DEPLOYING), age_s

        count, age_s = await seen()
        assert count == 2
        assert age_s >= 90
        await end(gateway, first, APPROVAL_DECISION_APPROVE)
        count, age_s = await seen()
        assert count == 1
        assert 0 < age_s < 90
        await end(gateway, second, APPROVAL_DECISION_DENY)
        assert await seen() == (0, 0.0)


async def test_decisions_and_the_time_they_took_are_counted_once(
    harness: Harness, agent: DeployAgent
) -> None:
    """Counted by the owner of the run at that time, so sums are over all gateways."""
    async with harness.gateway(lease_s=15.0) as one, harness.gateway(lease_s=15.0) as other:
        async with asking(harness, one, "deploy shop 1.2") as asked:
            await end(other, asked, APPROVAL_DECISION_APPROVE)
        async with asking(harness, other, "deploy shop 1.3") as asked:
            await end(one, asked, APPROVAL_DECISION_DENY)
        gateways = (one, other)
        for outcome in ("approved", "denied"):
            for name in ("bos_approvals_total", "bos_approval_wait_seconds_count"):
                assert sum(each.metric(name, outcome=outcome) or 0 for each in gateways) == 1
