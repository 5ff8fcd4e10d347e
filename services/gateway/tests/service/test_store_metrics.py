"""Gauges of the store and of waiting approvals, failed writes, and bounded labels."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from gateway_harness.harness import SHORT_LEASE, Client, Harness
from gateway_harness.postgres_proxy import postgres_proxy
from prometheus_client import CollectorRegistry

from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    APPROVAL_DECISION_DENY,
    Approval,
    ApprovalServiceStub,
    RespondApprovalRequest,
)
from bos.planner.v1 import Step
from bos.runlog.v1 import LogEvent, RunAccepted
from bos_chassis.telemetry import Telemetry
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log.approvals import ApprovalGauges
from bos_gateway.run_log.lanes import LogRefused
from bos_gateway.run_log.records import NewRun
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.run_log.store_gauges import StoreGauges
from bos_gateway.run_log.writer import LogWriter
from bos_gateway.service import migrate_store, new_run_id
from bos_postgres import PoolMetrics, connect, open_database
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

FAILURES = "bos_run_log_write_failures_total"


@pytest.fixture
async def store(postgres_dsn: str) -> str:
    await migrate_store(postgres_dsn)
    return postgres_dsn


def new_run() -> NewRun:
    run_id = new_run_id()
    accepted = LogEvent(run_accepted=RunAccepted(user_id="u"))
    return NewRun(run_id, "u", str(run_id), b"digest", "", "What?", accepted)


async def test_unowned_due_runs_are_counted_with_their_age(store: str) -> None:
    metrics = GatewayMetrics(registry := CollectorRegistry())
    async with (
        LogWriter(store, uuid4(), metrics=metrics, telemetry=Telemetry.for_tests()) as log,
        connect(store, schema=SCHEMA) as connection,
        open_database(store, schema=SCHEMA, max_size=1) as pool,
    ):
        gauges = StoreGauges(pool, metrics)
        owned, unowned = new_run(), new_run()
        await log.accept(owned)
        await log.accept(unowned)
        await gauges.refresh()
        assert registry.get_sample_value("bos_runs_unowned") == 0
        assert registry.get_sample_value("bos_runs_unowned_oldest_seconds") == 0
        await connection.execute(
            "UPDATE runs SET replica_id = NULL, retry_at = now() - interval '90 seconds' "
            "WHERE run_id = $1",
            unowned.run_id,
        )
        await gauges.refresh()
        assert registry.get_sample_value("bos_runs_unowned") == 1
        assert (registry.get_sample_value("bos_runs_unowned_oldest_seconds") or 0) >= 90
        for name in (
            "bos_postgres_database_size_bytes",
            "bos_run_log_size_bytes",
            "bos_postgres_connections",
            "bos_postgres_max_connections",
        ):
            assert (registry.get_sample_value(name) or 0) > 0, name


async def test_lease_gauge_is_zero_while_postgresql_is_unreachable(
    harness: Harness,
) -> None:
    async with (
        postgres_proxy(harness.dsn) as proxy,
        harness.gateway(store_url=proxy.dsn, **SHORT_LEASE) as client,
    ):
        await eventually(lambda: client.metric("bos_gateway_lease_held") == 1)
        proxy.cut()
        await eventually(lambda: client.metric("bos_gateway_lease_held") == 0)
        proxy.mend()
        await eventually(lambda: client.metric("bos_gateway_lease_held") == 1)


async def test_writes_that_postgresql_refuses_are_counted(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> None:
        raise asyncpg.DataError

    monkeypatch.setattr("bos_gateway.run_log.writer.insert_runs", refused)
    metrics = GatewayMetrics(registry := CollectorRegistry())
    async with LogWriter(store, uuid4(), metrics=metrics, telemetry=Telemetry.for_tests()) as log:
        assert registry.get_sample_value(FAILURES, {"outcome": "refused"}) == 0
        with pytest.raises(LogRefused):
            await log.accept(new_run())
    assert registry.get_sample_value(FAILURES, {"outcome": "refused"}) == 1
    assert registry.get_sample_value(FAILURES, {"outcome": "repeated"}) == 0


async def test_connections_of_pool_are_shown_by_state_while_it_is_open(store: str) -> None:
    registry = CollectorRegistry()
    pools = PoolMetrics.of(registry)
    labels = {"service": "gateway", "pool": "main"}

    def shown(state: str) -> float | None:
        name = "bos_postgres_pool_connections"
        return registry.get_sample_value(name, {**labels, "state": state})

    async with open_database(store, schema=SCHEMA, min_size=2, max_size=3) as pool:
        with pools.watching("gateway", "main", pool):
            assert (shown("idle"), shown("used")) == (2, 0)
            async with pool.acquire():
                assert (shown("idle"), shown("used")) == (1, 1)
            most = registry.get_sample_value("bos_postgres_pool_max_connections", labels)
            assert most == 3
        assert shown("idle") is None


@pytest.mark.parametrize(
    "names",
    [
        [f"agent-{number}" for number in range(5000)],
        ["x" * 1000, "two words", 'quote"} 1', "line\nbreak", "ünïcode"],
    ],
)
def test_names_of_agents_and_tools_make_bounded_number_of_series(names: Sequence[str]) -> None:
    metrics = GatewayMetrics(CollectorRegistry())
    for name in names:
        agent, tools = metrics.agent(name), metrics.tools(name)
        metrics.step_seconds.labels(agent, "succeeded").observe(1)
        metrics.approvals_waiting.labels(agent, tools).set(1)
    (steps,) = metrics.step_seconds.collect()
    counted = {each.labels["agent"] for each in steps.samples}
    assert len(counted) <= 201
    assert "other" in counted


WAITING, OLDEST = "bos_gateway_approvals_waiting", "bos_gateway_approvals_oldest_seconds"
DEPLOYING = {"agent": "deploy", "tools": "trigger_deployment"}


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
