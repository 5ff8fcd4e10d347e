"""Inputs of a kind that this version does not know are left to a newer replica."""

import asyncio

import asyncpg
import pytest
from gateway_harness.disconnects import run_under_way
from gateway_harness.harness import Harness

from bos.gateway.v1 import RUN_STATUS_CANCELLED, RUN_STATUS_SUCCEEDED
from bos.runlog.v1 import CancelRequested, LogEvent
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.crash

# A LogEvent of a version to come: its field 99 holds an empty message.
NEWER = bytes([(99 << 3 | 2) & 0x7F | 0x80, (99 << 3 | 2) >> 7, 0])


async def give(harness: Harness, run_id: str, payload: bytes) -> None:
    """Leave an input, as a newer replica would, or as that replica would read it."""
    connection = await asyncpg.connect(harness.dsn)
    await connection.execute(
        "INSERT INTO gateway.run_inputs (run_id, kind, payload) VALUES ($1, 'newer', $2) "
        "ON CONFLICT (run_id, kind, input_key) DO UPDATE SET payload = excluded.payload",
        run_id,
        payload,
    )
    await connection.close()


async def until_released(harness: Harness, run_id: str, times: int) -> None:
    """Wait until the run was let go that often, and check that it was for the one reason."""
    connection = await asyncpg.connect(harness.dsn)
    reasons: list[str] = []
    async with asyncio.timeout(60):
        while len(reasons) < times or await connection.fetchval(
            "SELECT replica_id IS NOT NULL FROM gateway.runs WHERE run_id = $1", run_id
        ):
            rows = await connection.fetch(
                "SELECT payload FROM gateway.run_events WHERE run_id = $1 AND kind = $2",
                run_id,
                "run_released",
            )
            reasons = [LogEvent.FromString(row["payload"]).run_released.reason for row in rows]
    await connection.close()
    assert set(reasons) == {"unknown_event"}


async def test_unknown_input_releases_the_run_to_a_newer_replica(
    harness: Harness,
) -> None:
    slow, echo = SlowAgent("slow"), EchoAgent("echo")
    await harness.add_agent(slow)
    await harness.add_agent(echo)
    harness.planner.steps = [step("a", "slow")]
    cancel = LogEvent(cancel_requested=CancelRequested(user_id="u", reason="enough"))
    assert LogEvent.FromString(NEWER).WhichOneof("event") is None
    async with harness.gateway() as old:
        run_id = await run_under_way(old, slow)
        await give(harness, run_id, NEWER)
        await until_released(harness, run_id, 1)
        await slow.cancelled.wait()
        async with harness.gateway() as another_old:
            await until_released(harness, run_id, 2)
            # Each leaves it alone for a while, and serves others.
            harness.planner.steps = [step("a", "echo")]
            for client in (old, another_old):
                assert (await client.ask("And others?")).status == RUN_STATUS_SUCCEEDED
            await give(harness, run_id, cancel.SerializeToString())
            async with harness.gateway() as newer:
                events = await newer.watch(run_id)
    assert events[-1].run_finished.response.status == RUN_STATUS_CANCELLED


async def test_unreadable_input_does_not_affect_other_runs(harness: Harness) -> None:
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    cancel = LogEvent(cancel_requested=CancelRequested(user_id="u", reason="enough"))
    async with harness.gateway(hold_off_s=60.0) as gateway:
        broken = await run_under_way(gateway, slow)
        other = await run_under_way(gateway, slow)
        await give(harness, broken, b"\xff")
        await until_released(harness, broken, 1)
        await give(harness, other, cancel.SerializeToString())
        events = await gateway.watch(other)
        assert events[-1].run_finished.response.status == RUN_STATUS_CANCELLED


async def test_known_input_that_came_before_an_unknown_one_counts(harness: Harness) -> None:
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    async with harness.gateway() as gateway:
        run_id = await run_under_way(gateway, slow)
        cancel = LogEvent(cancel_requested=CancelRequested(user_id="u", reason="enough"))
        await give(harness, run_id, cancel.SerializeToString())
        await eventually(slow.cancelled.is_set)
        events = await gateway.watch(run_id)
    assert events[-1].run_finished.response.status == RUN_STATUS_CANCELLED
