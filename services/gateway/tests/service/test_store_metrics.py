"""Gauges of the run log's store, failed writes, and labels that agents and tools fill."""

from collections.abc import Sequence
from uuid import uuid4

import asyncpg
import pytest
from gateway_harness.harness import SHORT_LEASE, Harness
from gateway_harness.postgres_proxy import postgres_proxy
from prometheus_client import CollectorRegistry

from bos.runlog.v1 import LogEvent, RunAccepted
from bos_chassis.telemetry import Telemetry
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log.lanes import LogRefused
from bos_gateway.run_log.records import NewRun
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.run_log.store_gauges import StoreGauges
from bos_gateway.run_log.writer import LogWriter
from bos_gateway.service import migrate_store, new_run_id
from bos_postgres import PoolMetrics, connect, open_database
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
