"""Streamed pieces of answers go after the end, and nobody's position in the log moves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry

from bos.gateway.v1 import GetRunRequest, ListRunsRequest, RunEvent
from bos_gateway.compaction import compact
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log import SCHEMA
from bos_gateway.runs import Runs
from bos_gateway.state import BrokenLog
from bos_gateway.upkeep import LOCK, Upkeep, UpkeepPlan
from bos_postgres import acquire, connect, open_database
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.plans import step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg
    from gateway_house import Client, House


@pytest.fixture
async def pool(house: House) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    async with open_database(house.dsn, schema=SCHEMA) as opened:
        yield opened


async def asked(house: House, gateway: Client) -> list[RunEvent]:
    """The events of a run whose answer came in several pieces."""
    house.composer.deltas = ["One ", "two ", "three."]
    return await gateway.events("Count.")


async def compacted(pool: asyncpg.Pool[asyncpg.Record]) -> tuple[int, int]:
    async with acquire(pool) as session:
        return await compact(session, after_s=0.0, limit=100)


async def kinds_stored(pool: asyncpg.Pool[asyncpg.Record]) -> list[tuple[int, str]]:
    rows = await pool.fetch("SELECT sequence, kind FROM run_events ORDER BY run_id, sequence")
    return [tuple(row) for row in rows]


async def test_ended_run_reads_the_same_without_its_deltas(
    house: House, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    await house.add_agent(EchoAgent("echo"))
    house.planner.steps = [step("a", "echo"), step("b", "echo")]
    async with house.gateway(delta_window_s=0.0) as gateway:
        before = await asked(house, gateway)
        run_id = before[0].run_id
        get = GetRunRequest(run_id=run_id)
        run = (await gateway.stub.GetRun(get)).run
        deltas = [event.sequence for event in before if event.HasField("answer_delta")]
        stored = await kinds_stored(pool)
        assert deltas
        assert await compacted(pool) == (1, len(deltas))
        assert await kinds_stored(pool) == [s for s in stored if s[1] != "answer_delta"]
        rest = [event for event in before if not event.HasField("answer_delta")]
        assert await gateway.watch(run_id) == rest
        # A client that had seen some of the text goes on behind it.
        assert await gateway.watch(run_id, deltas[0]) == rest[-1:]
        assert (await gateway.stub.GetRun(get)).run == run
        (listed,) = (await gateway.stub.ListRuns(ListRunsRequest())).runs
        assert listed.last_sequence == run.last_sequence == before[-1].sequence
    assert await compacted(pool) == (0, 0)


async def test_run_under_way_keeps_its_deltas(
    house: House, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    slow = SlowAgent("slow")
    await house.add_agent(slow)
    house.planner.steps = [step("a", "slow")]
    async with house.gateway() as gateway:
        call = gateway.stream()
        await slow.started.wait()
        assert await compacted(pool) == (0, 0)
        call.cancel()


@pytest.mark.parametrize("kind", ["planned", "answer_started", "answer_delta"])
async def test_gap_that_compaction_did_not_make_is_a_broken_log(
    house: House, pool: asyncpg.Pool[asyncpg.Record], kind: str
) -> None:
    async with house.gateway(delta_window_s=0.0) as gateway:
        run_id = UUID((await asked(house, gateway))[0].run_id)
    if kind != "answer_delta":
        await compacted(pool)
    await pool.execute("DELETE FROM run_events WHERE kind = $1", kind)
    with pytest.raises(BrokenLog):
        await Runs(pool).log(run_id)


async def test_gateway_compacts_in_the_background_also_what_ended_elsewhere(
    house: House, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    async with house.gateway() as first:
        before = await asked(house, first)
    async with house.gateway(compact_after_s=0.0, upkeep_interval_s=0.02) as second:
        async with asyncio.timeout(20):
            while await pool.fetchval("SELECT count(*) FROM runs WHERE compacted IS NULL"):
                pass
        after = await second.watch(before[0].run_id)
    assert after == [event for event in before if not event.HasField("answer_delta")]


async def test_upkeep_is_done_by_one_at_a_time_and_in_batches(
    house: House, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    async with house.gateway() as gateway:
        for _ in range(3):
            await asked(house, gateway)
    registry = CollectorRegistry()
    plan = UpkeepPlan(compact_after_s=0.0, keep_s=None, batch=2)
    upkeep = Upkeep(pool, plan, GatewayMetrics(registry))
    async with connect(house.dsn) as other, other.transaction():
        await other.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        assert not await upkeep.round()
        assert registry.get_sample_value("bos_run_log_compacted_events_total") == 0
    assert await upkeep.round()
    assert not await upkeep.round()
    assert not [s for s in await kinds_stored(pool) if s[1] == "answer_delta"]
    assert registry.get_sample_value("bos_run_log_compacted_events_total")
