"""The trace of a run is whole over kills and hand-overs of its owners."""

from collections.abc import Iterator

import pytest
from gateway_harness.answering import APPROVE, respond
from gateway_harness.crash.harness import replica_process
from gateway_harness.harness import Harness, deploying, gateway_process, kinds
from gateway_harness.streamed import seen_until
from gateway_harness.traced import EXECUTE, OWN, RUN, Traced, attempts, taken_over

from bos.gateway.v1 import (
    RUN_STATUS_FAILED,
)
from bos_testkit.agents import SlowAgent
from bos_testkit.deploy import DeployAgent
from bos_testkit.otlp.spans import SeenSpan, span_receiver
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.crash


@pytest.fixture
def traced(harness: Harness) -> Iterator[Traced]:
    with span_receiver() as receiver:
        yield Traced(harness, receiver)


async def test_the_trace_of_a_run_whose_owner_was_killed_is_whole(traced: Traced) -> None:
    async with taken_over(traced) as run_id:
        trace = await traced.trace_of(run_id)
    first, second = trace.named(OWN)
    assert second.links == ((first.span_id, "former owner"),)
    assert (first.attributes["bos.ownership.end"], first.failed) == ("owner_lost", True)
    tried = attempts(trace, "slow")
    assert [each.failed for each in tried] == [True, False]
    # Each call of the agent is below the attempt that it was made for, also the one that broke off.
    called = [span for span in trace.named(EXECUTE) if span.service == "slow"]
    assert [span.parent_id for span in called] == [each.span_id for each in tried]
    run = f"gateway: {RUN}"
    assert {
        (run, "gateway: plan"),
        ("gateway: plan", "doubles: bos.planner.v1.PlannerService/MakePlan"),
        (run, "gateway: compose"),
        ("gateway: compose", "doubles: bos.composer.v1.ComposerService/Compose"),
        (run, "gateway: invoke_agent quick"),
        ("gateway: invoke_agent quick", f"quick: {EXECUTE}"),
        (f"quick: {EXECUTE}", "quick: invoke_agent quick"),
    } <= trace.edges()


async def test_trace_survives_a_replica_killed_at_the_end_of_the_run(traced: Traced) -> None:
    slow = SlowAgent("slow")
    await traced.add_agent(slow)
    traced.harness.planner.steps = [step("a", "slow")]
    async with replica_process(
        traced.harness, "kill run_finished:after", **traced.settings
    ) as gateway:
        seen = await seen_until(gateway.client, "step_started")
        slow.release.set()
        await gateway.died()
    assert not traced.runs(seen[0].run_id)
    async with gateway_process(traced.harness, **traced.settings):
        trace = await traced.trace_of(seen[0].run_id)
    assert trace.one(RUN).attributes["bos.run.status"] == "succeeded"
    assert len(trace.named(OWN)) == 1


async def test_trace_is_whole_across_an_approval(traced: Traced) -> None:
    agent = DeployAgent()
    await traced.add_agent(agent)
    traced.harness.planner.steps = [deploying()]
    async with gateway_process(traced.harness, **traced.settings) as (process, client):
        seen = await seen_until(client, "approval_requested")
        process.terminate()
        await process.wait()
    async with gateway_process(traced.harness, **traced.settings) as (_, client):
        await respond(client, seen[-1].approval_requested.approval, APPROVE)
        rest = await client.watch(seen[0].run_id, seen[-1].sequence)
        assert kinds(rest)[-1] == "run_finished"
        trace = await traced.trace_of(seen[0].run_id)
        await eventually(lambda: bool(answering(traced)))
    assert len(agent.effects) == 1
    proposing, performing = attempts(trace, "deploy")
    waited = trace.one("approval")
    (decided,) = answering(traced)
    assert waited.links == (
        (proposing.span_id, "proposed by"),
        (decided.span_id, "decided by"),
    )
    assert decided.trace_id != trace.one(RUN).trace_id
    assert performing.links == ((waited.span_id, "approval"),)
    assert proposing.end_ns <= waited.end_ns <= performing.start_ns
    assert {"waiting_for_approval", "finished"} <= {
        owner.attributes["bos.ownership.end"] for owner in trace.named(OWN)
    }


def answering(traced: Traced) -> list[SeenSpan]:
    return [span for span in traced.receiver.spans if span.name.endswith("/RespondApproval")]


async def test_a_run_that_is_ended_unread_has_its_span_alone(traced: Traced) -> None:
    harness, slow = traced.harness, SlowAgent("slow")
    await traced.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    settings = {**traced.settings, "max_failures": 1}
    async with gateway_process(harness, **settings) as (process, client):
        seen = await seen_until(client, "step_started")
        process.kill()
        await process.wait()
    run_id = seen[0].run_id
    async with gateway_process(harness, **settings) as (_, client):
        (*_, last) = await client.watch(run_id, seen[-1].sequence)
        assert last.run_finished.response.status == RUN_STATUS_FAILED
        await eventually(lambda: bool(traced.runs(run_id)))
    (root,) = traced.runs(run_id)
    assert (root.failed, root.attributes["error.type"]) == (True, "OwnersDied")
    assert not [span for span in traced.receiver.spans if span.parent_id == root.span_id]
