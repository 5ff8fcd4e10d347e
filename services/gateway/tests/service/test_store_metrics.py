"""Gauges of the store and of waiting approvals, failed writes, and bounded labels."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from gateway_harness.admission import run_of, writers
from gateway_harness.answering import APPROVE, DENY, Following, respond
from gateway_harness.harness import SHORT_LEASE, Client, Harness, deploying
from gateway_harness.postgres_proxy import postgres_proxy
from prometheus_client import CollectorRegistry

from bos_chassis.telemetry import Telemetry
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log.approvals import ApprovalGauges
from bos_gateway.run_log.lanes import LogRefused
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.run_log.store_gauges import StoreGauges
from bos_gateway.run_log.writer import LogWriter
from bos_postgres import PoolMetrics, open_database
from bos_testkit.waiting import eventually

FAILURES = "bos_run_log_write_failures_total"


async def test_unowned_due_runs_are_counted_with_their_age(store: str, pool: Any) -> None:
    metrics = GatewayMetrics(registry := CollectorRegistry())

    async def gauge(name: str) -> float:
        await StoreGauges(pool, metrics).refresh()
        return registry.get_sample_value(name) or 0

    async with writers(store, 1) as (log,):
        await log.accept(run_of("u"))
        await log.accept(unowned := run_of("u"))
    assert await gauge("bos_runs_unowned") == 0
    assert await gauge("bos_runs_unowned_oldest_seconds") == 0
    await pool.execute(
        "UPDATE runs SET replica_id = NULL, retry_at = now() - interval '90 seconds' "
        "WHERE run_id = $1",
        unowned.run_id,
    )
    assert await gauge("bos_runs_unowned") == 1
    assert await gauge("bos_runs_unowned_oldest_seconds") >= 90
    for name in (
        "bos_postgres_database_size_bytes",
        "bos_run_log_size_bytes",
        "bos_postgres_connections",
        "bos_postgres_max_connections",
    ):
        assert await gauge(name) > 0, name


async def test_lease_gauge_is_zero_while_postgresql_is_unreachable(harness: Harness) -> None:
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
            await log.accept(run_of("u"))
    assert registry.get_sample_value(FAILURES, {"outcome": "refused"}) == 1
    assert registry.get_sample_value(FAILURES, {"outcome": "repeated"}) == 0


async def waiting(harness: Harness, gateway: Client, version: str) -> Following:
    harness.planner.steps = [deploying(f"deploy shop {version}")]
    following = Following(gateway)
    await following.asked()
    return following


async def end(gateway: Client, following: Following, decision: int) -> None:
    await respond(gateway, following.requests[0], decision)
    await following.end()


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


async def test_what_waits_no_more_is_shown_as_none(harness: Harness, pool: Any) -> None:
    await harness.plan_deployment()
    metrics = GatewayMetrics(registry := CollectorRegistry())
    async with harness.gateway() as gateway:
        first = await waiting(harness, gateway, "1.2")
        second = await waiting(harness, gateway, "1.3")
        aged = "UPDATE approvals SET created_at = now() - interval '90 s' WHERE approval_id = $1"
        await pool.execute(aged, first.requests[0].approval_id)
        gauges = ApprovalGauges(pool, metrics)

        async def seen() -> tuple[Any, Any]:
            await gauges.refresh()
            names = (WAITING, OLDEST)
            return tuple(registry.get_sample_value(name, DEPLOYING) for name in names)

        count, age_s = await seen()
        assert count == 2
        assert age_s >= 90
        await end(gateway, first, APPROVE)
        count, age_s = await seen()
        assert count == 1
        assert 0 < age_s < 90
        await end(gateway, second, DENY)
        assert await seen() == (0, 0.0)


async def test_decisions_and_the_time_they_took_are_counted_once(harness: Harness) -> None:
    """Counted by the owner of the run at that time, so sums are over all gateways."""
    await harness.plan_deployment()
    async with harness.gateway() as one, harness.gateway() as other:
        await end(other, await waiting(harness, one, "1.2"), APPROVE)
        await end(one, await waiting(harness, other, "1.3"), DENY)
        for outcome in ("approved", "denied"):
            for name in ("bos_approvals_total", "bos_approval_wait_seconds_count"):
                counted = [each.metric(name, outcome=outcome) or 0 for each in (one, other)]
                assert sum(counted) == 1
