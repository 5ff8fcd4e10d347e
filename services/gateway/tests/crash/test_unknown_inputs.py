"""Inputs of a kind that this version does not know are left to a newer replica."""

import pytest
from gateway_harness.harness import Harness
from gateway_harness.stored import fetch, log_of, until
from gateway_harness.streamed import run_under_way

from bos.gateway.v1 import RUN_STATUS_CANCELLED, RUN_STATUS_SUCCEEDED
from bos.runlog.v1 import CancelRequested, LogEvent
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.plans import step

pytestmark = pytest.mark.crash

# A LogEvent of a version to come: its field 99 holds an empty message.
NEWER = bytes([(99 << 3 | 2) & 0x7F | 0x80, (99 << 3 | 2) >> 7, 0])


CANCEL = LogEvent(cancel_requested=CancelRequested(user_id="u", reason="enough"))


async def give(harness: Harness, run_id: str, payload: bytes) -> None:
    """Leave an input, as a newer replica would, or as that replica would read it."""
    await fetch(
        harness.dsn,
        "INSERT INTO run_inputs (run_id, kind, payload) VALUES ($1, 'newer', $2) "
        "ON CONFLICT (run_id, kind, input_key) DO UPDATE SET payload = excluded.payload",
        run_id,
        payload,
    )


async def until_released(harness: Harness, run_id: str, times: int) -> None:
    """Wait until the run was let go that often, and check that it was for the one reason."""
    await until(
        harness.dsn,
        "replica_id IS NULL AND (SELECT count(*) >= $2 FROM run_events AS e "
        "WHERE e.run_id = r.run_id AND kind = 'run_released') FROM runs AS r WHERE run_id = $1",
        run_id,
        times,
    )
    log = await log_of(harness.dsn, "run_id = $1", run_id)
    reasons = {event.run_released.reason for event in log if event.HasField("run_released")}
    assert reasons == {"unknown_event"}


async def test_unknown_input_releases_the_run_to_a_newer_replica(harness: Harness) -> None:
    slow, echo = SlowAgent("slow"), EchoAgent("echo")
    await harness.add_agent(slow)
    await harness.add_agent(echo)
    harness.planner.steps = [step("a", "slow")]
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
            await give(harness, run_id, CANCEL.SerializeToString())
            async with harness.gateway() as newer:
                events = await newer.watch(run_id)
    assert events[-1].run_finished.response.status == RUN_STATUS_CANCELLED


async def test_unreadable_input_does_not_affect_other_runs(harness: Harness) -> None:
    slow = await harness.plan(SlowAgent("slow"))
    async with harness.gateway(hold_off_s=60.0) as gateway:
        broken = await run_under_way(gateway, slow)
        other = await run_under_way(gateway, slow)
        await give(harness, broken, b"\xff")
        await until_released(harness, broken, 1)
        await give(harness, other, CANCEL.SerializeToString())
        events = await gateway.watch(other)
        assert events[-1].run_finished.response.status == RUN_STATUS_CANCELLED
