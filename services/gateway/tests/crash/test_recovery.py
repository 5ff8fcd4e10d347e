"""A run outlives the process that drives it."""

import asyncio
import signal

import pytest
from gateway_harness.disconnects import seen_until
from gateway_harness.harness import Harness, gateway_process, kinds, result_of
from gateway_harness.streamed import answer_text, cursor, logged

from bos.gateway.v1 import RUN_STATUS_SUCCEEDED
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "drained"])
@pytest.mark.requirement("C-31")
async def test_run_resumes_after_a_restart_without_repeating_steps(
    harness: Harness, number: int
) -> None:
    quick, slow = EchoAgent("quick", data={"x": 1}), SlowAgent("slow")
    await harness.add_agent(quick)
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "quick"), step("b", "slow", "use @{outputs.a.x}")]
    async with gateway_process(harness) as (process, client):
        seen = await seen_until(client, "step_started", "b")
        await slow.started.wait()
        process.send_signal(number)
        await process.wait()
    async with gateway_process(harness) as (_, client):
        await eventually(lambda: len(slow.inputs) == 2)
        slow.release.set()
        rest = await client.watch(seen[0].run_id, seen[-1].sequence)
    events = [*seen, *rest]
    assert events[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED
    assert len(quick.inputs) == 1
    assert {i.metadata.step_key for i in slow.inputs} == {f"{seen[0].run_id}/0/b"}
    assert [i.metadata.attempt for i in slow.inputs] == [1, 2]
    assert kinds(rest)[0] in {"run_resumed", "step_progress"}
    assert result_of(events, "b").answer
    sequences = [event.sequence for event in logged(events)]
    assert sequences == sorted(set(sequences))
    assert len(harness.planner.requests) == 1


async def test_interrupted_composing_starts_over_and_voids_its_deltas(harness: Harness) -> None:
    await harness.add_agent(EchoAgent("echo"))
    harness.composer.release = asyncio.Event()
    async with gateway_process(harness) as (process, client):
        seen = await seen_until(client, "answer_delta")
        process.kill()
        await process.wait()
    harness.composer.release.set()
    async with gateway_process(harness) as (_, client):
        rest = await client.watch(seen[0].run_id, **cursor(seen))
    attempts = [e.answer_started.attempt for e in [*seen, *rest] if e.HasField("answer_started")]
    assert attempts == [1, 2]
    assert answer_text([*seen, *rest]) == rest[-1].run_finished.response.answer
